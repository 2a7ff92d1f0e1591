"""A structural OpenAPI v3 schema, compiled once a definition into nodes that prune, default and validate walk over.

A node has what every value is asked as plain attributes, and the rest (bounds, patterns, enums) as a tuple of checks, so
that a schema without them costs nothing. `checks` and the logical parts (allOf, anyOf, oneOf, not) only judge; the shape of
a value comes from `properties`, `items` and `additional` alone, which is what "structural" means.
"""

from __future__ import annotations

from typing import Any

from control.decoding.numbers import NumberError, normalized
from control.patch.json_patch import identity
from kube import errors
from kube.field_path import MOST_PROBLEMS, bounded
from kube.json_object import Object, copy_json, count_values

MISSING: Any = object()
_META = ("apiVersion", "kind", "metadata")
_EXPONENT = 1e21
"""The least that Go writes with an exponent."""
MOST_DEFAULTS = 50_000
"""Values that defaults add to an object. Those of lists within lists multiply: a definition of 1 KB can make millions."""


class Schema:
    """One place in a schema."""

    __slots__ = (
        "additional",
        "all_of",
        "allowed",
        "any_of",
        "closed",
        "default",
        "default_size",
        "defaults_below",
        "embedded",
        "embedded_below",
        "enum",
        "format",
        "int_or_string",
        "items",
        "limits",
        "list_keys",
        "list_type",
        "map_type",
        "negation",
        "nullable",
        "one_of",
        "preserve",
        "properties",
        "required",
        "rules",
        "rules_below",
        "source",
        "type",
    )

    def __init__(self, source: Object) -> None:
        self.source = source
        self.type: str = source.get("type") or ""
        self.format: str = source.get("format") or ""
        self.nullable = bool(source.get("nullable"))
        self.int_or_string = bool(source.get("x-kubernetes-int-or-string"))
        self.preserve = bool(source.get("x-kubernetes-preserve-unknown-fields"))
        self.embedded = bool(source.get("x-kubernetes-embedded-resource"))
        self.list_type: str = source.get("x-kubernetes-list-type") or ""
        self.list_keys: tuple[str, ...] = tuple(source.get("x-kubernetes-list-map-keys") or ())
        self.map_type: str = source.get("x-kubernetes-map-type") or ""
        self.rules: list[Object] = source.get("x-kubernetes-validations") or []
        self.default: Any = _default(source["default"]) if "default" in source else MISSING
        self.default_size = 0 if self.default is MISSING else count_values(self.default)
        self.properties: dict[str, Schema] = {
            name: Schema(part) for name, part in (source.get("properties") or {}).items()
        }
        extra = source.get("additionalProperties")
        self.additional: Schema | None = (
            Schema(extra) if isinstance(extra, dict) else (Schema({}) if extra is True else None)
        )
        if extra is True and self.additional is not None:
            self.additional.preserve = True
        self.closed = extra is False
        items = source.get("items")
        self.items = Schema(items) if isinstance(items, dict) else None
        self.required: tuple[str, ...] = tuple(source.get("required") or ())
        self.enum: list[Any] | None = source.get("enum") or None
        self.allowed = frozenset(map(identity, self.enum or ()))
        self.all_of = [Schema(part) for part in source.get("allOf") or ()]
        self.any_of = [Schema(part) for part in source.get("anyOf") or ()]
        self.one_of = [Schema(part) for part in source.get("oneOf") or ()]
        negation = source.get("not")
        self.negation = Schema(negation) if negation is not None else None
        self.limits = {name: source[name] for name in _LIMITS if source.get(name) is not None}
        below = [*self.properties.values(), *(s for s in (self.items, self.additional) if s is not None)]
        self.defaults_below: bool = any(s.default is not MISSING or s.defaults_below for s in below)
        self.rules_below: bool = any(s.rules or s.rules_below for s in below)
        self.embedded_below: bool = any(s.embedded or s.embedded_below for s in below)

    def below(self, key: str) -> Schema | None:
        """Return the schema of an object's field."""
        return self.properties.get(key) or self.additional


_LIMITS = (
    "minimum",
    "maximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
)


def _default(value: Any) -> Any:
    """Return a default with its numbers as they are stored; as it is if another server has accepted a number too large."""
    try:
        return normalized(value)
    except NumberError:
        return value


def compile_root(source: Object | None) -> Schema:
    """Compile the schema of a whole object; apiVersion, kind and metadata are always there."""
    return Schema(source or {"type": "object", "x-kubernetes-preserve-unknown-fields": True})


# -- pruning --------------------------------------------------------------------------------------------------------
def prune(value: Any, schema: Schema, path: str, unknown: list[str], *, resource: bool = False) -> Any:
    """Return a copy without the fields that the schema does not know and without nulls that it does not allow.

    Whole floats become integers, which Go writes for them: a client could not read `1.0` into an integer.
    `unknown` collects the paths of dropped fields; `resource` marks the object that has metadata of its own. As upstream's
    pruning package and PruneNonNullableNullsWithoutDefaults do it.
    """
    if isinstance(value, dict):
        kept: Object = {}
        properties, additional = schema.properties, schema.additional
        for key, part in value.items():
            known = properties.get(key)
            if resource and key in _META:
                kept[key] = part
                continue
            if known is None:
                if additional is not None:
                    known = additional
                elif schema.preserve:
                    kept[key] = part
                    continue
                else:
                    if len(unknown) < MOST_PROBLEMS:
                        unknown.append(f"{path}.{key}" if path else key)
                    continue
            if part is None:
                if known.nullable or known.default is not MISSING or (not known.type and known.preserve):
                    kept[key] = None
                continue
            if isinstance(part, dict | list):
                kept[key] = prune(
                    part, known, bounded(f"{path}.{key}" if path else key), unknown, resource=known.embedded
                )
            else:
                kept[key] = part if type(part) is not float else _number(part)
        return kept
    if isinstance(value, list):
        items = schema.items
        if items is None:
            return list(value)
        return [
            prune(part, items, f"{path}[{index}]", unknown, resource=items.embedded)
            if isinstance(part, dict | list)
            else (part if type(part) is not float else _number(part))
            for index, part in enumerate(value)
        ]
    return value


def _number(value: float) -> float:
    return int(value) if value.is_integer() and abs(value) < _EXPONENT else value


# -- defaulting -----------------------------------------------------------------------------------------------------
def fill(value: Any, schema: Schema) -> None:
    """Put the schema's defaults into what is absent, in place; null stands for absent where it is not allowed.

    Raises 413 if they are more than MOST_DEFAULTS values.
    """
    _Defaults().fill(value, schema)


class _Defaults:
    """Puts defaults into one object, and counts them."""

    def __init__(self) -> None:
        self._left = MOST_DEFAULTS

    def fill(self, value: Any, schema: Schema) -> None:
        if not schema.defaults_below:
            return
        if isinstance(value, dict):
            for name, part in schema.properties.items():
                if part.default is not MISSING:
                    present = value.get(name, MISSING)
                    if present is MISSING or (present is None and not part.nullable):
                        value[name] = self._default(part)
                if part.defaults_below and name in value:
                    self.fill(value[name], part)
            additional = schema.additional
            if additional is not None:
                for key, part_value in value.items():
                    if key in schema.properties:
                        continue
                    if part_value is None and additional.default is not MISSING and not additional.nullable:
                        value[key] = self._default(additional)
                    self.fill(value[key], additional)
        elif isinstance(value, list) and schema.items is not None:
            items = schema.items
            for index, part_value in enumerate(value):
                if part_value is None and items.default is not MISSING and not items.nullable:
                    value[index] = self._default(items)
                self.fill(value[index], items)

    def _default(self, schema: Schema) -> Any:
        self._left -= schema.default_size
        if self._left < 0:
            raise errors.too_much(f"the defaults of its definition add more than {MOST_DEFAULTS} values to the object")
        return copy_json(schema.default)
