"""Validates rules that OpenAPI cannot express: sets and maps without duplicates, and embedded resources."""

from __future__ import annotations

from typing import Any

import msgspec

from control.decoding.decode_errors import go_message
from control.schemas.schema import Schema
from control.schemas.validation import key_of
from kube import errors
from kube.api import meta_v1
from kube.errors import FieldError
from kube.field_path import MOST_PROBLEMS, bounded
from kube.json_object import Object, canonical


def check_structure(value: Any, schema: Schema) -> list[FieldError]:
    """Return what is wrong with sets, maps and embedded resources in an object."""
    found: list[FieldError] = []
    _structure(value, schema, "", found)
    return found


def _structure(value: Any, schema: Schema, path: str, found: list[FieldError]) -> None:
    if isinstance(value, dict):
        if schema.embedded:
            _embedded(value, path, found)
        properties, additional = schema.properties, schema.additional
        for key, part in value.items():
            if isinstance(part, dict | list):
                known = properties.get(key)
                if known is not None:
                    _structure(part, known, f"{path}.{key}" if path else key, found)
                elif additional is not None:
                    _structure(part, additional, bounded(f"{path}[{key}]"), found)
    elif isinstance(value, list) and schema.items is not None:
        if schema.list_type in ("set", "map"):
            _unique(value, schema, path, found)
        for index, part in enumerate(value):
            if isinstance(part, dict | list):
                _structure(part, schema.items, f"{path}[{index}]", found)


def _unique(value: list[Any], schema: Schema, path: str, found: list[FieldError]) -> None:
    seen: set[bytes] = set()
    reported: set[bytes] = set()
    for index, part in enumerate(value):
        if schema.list_type == "map":
            if not isinstance(part, dict):
                continue
            identity = key_of(part, schema)
            shown: Any = {name: part[name] for name in schema.list_keys if name in part}
        else:
            identity, shown = canonical(part), part
        if identity in seen and identity not in reported and len(reported) < MOST_PROBLEMS:
            reported.add(identity)
            found.append(errors.duplicate(f"{path}[{index}]", shown))
        seen.add(identity)


def _embedded(value: Object, path: str, found: list[FieldError]) -> None:
    for part in ("apiVersion", "kind"):
        given = value.get(part)
        if given is None or given == "":
            found.append(errors.required(f"{path}.{part}", "must not be empty"))
        elif not isinstance(given, str):
            found.append(errors.invalid_value(f"{path}.{part}", given, "must be a string"))
    given = value.get("metadata") or {}
    try:
        msgspec.convert(given, meta_v1.ObjectMeta)
    except msgspec.ValidationError as error:
        why = go_message(error, given, meta_v1.ObjectMeta)
        found.append(errors.invalid_value(f"{path}.metadata", given, why))
