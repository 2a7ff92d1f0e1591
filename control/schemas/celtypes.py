"""A structural schema as a CEL type: fields of `self`, their escaped names, and their maximum sizes.

Names that CEL could not read are escaped as upstream does (`__dot__`, `__dash__`, keywords). Values of some formats are
another type in CEL than in JSON; such a type carries its conversion.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from control.cel.errors import EvaluationError
from control.cel.parser import RESERVED
from control.cel.types import BOOL, DOUBLE, DYN, INT, STRING, Type, list_of, map_of
from control.cel.values import SECOND, Duration, Timestamp, parse_duration, parse_timestamp
from control.schemas.schema import MISSING, Schema
from kube import base64_text

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_KEYWORDS = RESERVED | {"true", "false", "null", "in"}
_LONGEST_DATE = 64
"""Characters of a date that is parsed."""
_BYTES_A_CHARACTER = 4
"""Schemas count characters, requests bytes."""


def escape(name: str) -> str | None:
    """Return a property's name as expressions write it; None if it has no such form."""
    if name in _KEYWORDS:
        return f"__{name}__"
    text = name.replace("__", "__underscores__").replace(".", "__dot__").replace("-", "__dash__")
    text = text.replace("/", "__slash__").replace("$", "__dollar__")
    return text if _NAME.fullmatch(text) else None


def _bytes(value: Any) -> Any:
    try:
        return base64_text.decode(value) if isinstance(value, str) else value
    except ValueError:
        raise EvaluationError("type conversion error from 'string' to 'bytes'") from None


def _date(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        if len(value) > _LONGEST_DATE:
            raise ValueError(value)
        return Timestamp(int(datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp()) * SECOND)
    except ValueError:
        raise EvaluationError("type conversion error from 'string' to 'google.protobuf.Timestamp'") from None


def _date_time(value: Any) -> Timestamp | Any:
    return parse_timestamp(value) if isinstance(value, str) else value


def _duration(value: Any) -> Duration | Any:
    return parse_duration(value) if isinstance(value, str) else value


_FORMATS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "byte": ("bytes", _bytes),
    "date": ("timestamp", _date),
    "date-time": ("timestamp", _date_time),
    "duration": ("duration", _duration),
}


def type_of(schema: Schema, *, root: bool = False, name: str = "selfType") -> Type | None:
    """Return the type of a schema's values, None if nothing is known of them and rules cannot reach them.

    The values of a `root`, as embedded resources, have apiVersion, kind and metadata.
    """
    limits = schema.limits
    root = root or schema.embedded
    if schema.int_or_string:
        return DYN
    if schema.type == "array":
        if schema.items is None:
            return None
        item = type_of(schema.items, name=f"{name}.@idx")
        if item is None:
            return None
        return list_of(item, size=limits.get("maxItems"), unique=_unique(schema), keys=schema.list_keys)
    if schema.type == "object":
        if schema.additional is not None and not schema.properties and not root:
            item = type_of(schema.additional, name=f"{name}.@elem")
            return None if item is None else map_of(_KEY, item, size=limits.get("maxProperties"))
        return Type(
            "object",
            name=name,
            fields=lambda: _fields(schema, root=root, name=name),
            required=_required(schema),
        )
    if schema.type == "string":
        size = limits.get("maxLength")
        if schema.format in _FORMATS:
            kind, convert = _FORMATS[schema.format]
            return Type(kind, size=size, convert=convert)
        if size is not None:
            return Type("string", size=size * _BYTES_A_CHARACTER)
        if schema.enum:
            return Type("string", size=max((len(one) for one in schema.enum if isinstance(one, str)), default=0))
        return STRING
    return {"boolean": BOOL, "integer": INT, "number": DOUBLE}.get(schema.type)


def _required(schema: Schema) -> frozenset[str]:
    """Return the required properties that no default fills in."""
    parts = schema.properties
    return frozenset(key for key in schema.required if key in parts and parts[key].default is MISSING)


def _unique(schema: Schema) -> str:
    return schema.list_type if schema.list_type in ("set", "map") else ""


_KEY = Type("string", size=0)
"""Key of a map. Upstream's estimate takes it for empty (apiserver/pkg/cel, the type of keys has no length)."""
_META_NAMES = Type("object", name="metadata", fields=lambda: {n: (n, STRING) for n in ("name", "generateName")})


def _fields(schema: Schema, *, root: bool, name: str) -> dict[str, tuple[str, Type]]:
    found: dict[str, tuple[str, Type]] = {}
    if root:
        found |= {"apiVersion": ("apiVersion", STRING), "kind": ("kind", STRING), "metadata": ("metadata", _META_NAMES)}
    for key, part in schema.properties.items():
        escaped = escape(key)
        if escaped is None or (root and key in found):
            continue
        known = type_of(part, name=f"{name}.{key}")
        if known is not None:
            found[escaped] = (key, known)
    return found
