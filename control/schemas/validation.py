"""Validates a value against a schema, with upstream's paths and messages (kube-openapi's validators).

On an update whatever did not change is passed over: an object that an older definition let in can still be worked with
(upstream's CRD validation ratcheting). That is also what makes updates of large objects cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from control.cel import formats, patterns
from control.patch.json_patch import identity
from control.schemas.matching import closest
from control.schemas.schema import MISSING, Schema
from kube import errors
from kube.errors import FieldError
from kube.field_path import bounded
from kube.json_object import Object, canonical, identical

MOST_FOUND = 1000
"""Problems of one object that are looked for."""

NOWHERE = "<nil>"
"""Upstream's text for the path of the whole object."""
_BLOCKING = frozenset({"Unsupported value", "Required value", "Too long", "Too many"})
_INT32, _INT64 = 1 << 31, 1 << 63


@dataclass(frozen=True, slots=True)
class TypeInvalid(FieldError):
    """A value of a wrong type; printed as Invalid value, distinguished in the Status causes."""

    @property
    def cause(self) -> str:
        return "FieldValueTypeInvalid"


def blocks_rules(problems: list[FieldError]) -> bool:
    """Return whether an object is so invalid that CEL rules cannot be evaluated."""
    return any(problem.type in _BLOCKING or isinstance(problem, TypeInvalid) for problem in problems)


def check(value: Any, schema: Schema, old: Any = MISSING) -> list[FieldError]:
    """Return everything wrong with a whole object."""
    found: list[FieldError] = []
    _value(value, schema, "", found, old)
    return found


def _value(value: Any, schema: Schema, path: str, found: list[FieldError], old: Any) -> None:
    if len(found) >= MOST_FOUND or (old is not MISSING and identical(value, old)):
        return
    wanted = schema.type
    if value is None:
        if not schema.nullable and (wanted or schema.int_or_string):
            _type_error(value, schema, path, found)
        if schema.enum is not None:
            _enum(value, schema, path, found)
        return
    kind = type(value)
    if wanted or schema.int_or_string:
        if not _TYPES[wanted](value) if wanted else kind is not str and not _is_int(value):
            _type_error(value, schema, path, found)
    if kind is dict:
        _object(value, schema, path, found, old)
    elif kind is list:
        _list(value, schema, path, found, old)
    elif kind is str:
        if schema.limits or schema.format:
            _string(value, schema, path, found)
    elif kind is not bool and (schema.limits or schema.format):
        _number(value, schema, path, found)
    if schema.enum is not None:
        _enum(value, schema, path, found)
    if schema.all_of or schema.any_of or schema.one_of or schema.negation is not None:
        _logical(value, schema, path, found)


def _is_int(value: Any) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: type(value) is str,
    "integer": _is_int,
    "number": lambda value: type(value) in (int, float),
    "boolean": lambda value: type(value) is bool,
    "object": lambda value: type(value) is dict,
    "array": lambda value: type(value) is list,
}
_JSON_TYPES = {
    str: "string",
    bool: "boolean",
    dict: "object",
    list: "array",
    int: "integer",
    float: "number",
    type(None): "null",
}


def _at(path: str) -> str:
    return path.removeprefix(".") or NOWHERE


def _invalid(found: list[FieldError], path: str, value: Any, why: str) -> None:
    found.append(errors.invalid_value(_at(path), value, f"{path} in body {why}"))


def _type_error(value: Any, schema: Schema, path: str, found: list[FieldError]) -> None:
    given = _JSON_TYPES[type(value)]
    wanted = "integer,string" if schema.int_or_string else schema.type
    found.append(TypeInvalid(_at(path), "Invalid value", f'{path} in body must be of type {wanted}: "{given}"', given))


def _enum(value: Any, schema: Schema, path: str, found: list[FieldError]) -> None:
    if identity(value) not in schema.allowed:
        shown = [one if isinstance(one, str) else msgspec.json.encode(one).decode() for one in schema.enum or ()]
        found.append(errors.not_supported(_at(path), value, shown))


def _object(value: Object, schema: Schema, path: str, found: list[FieldError], old: Any) -> None:
    limits = schema.limits
    if limits:
        if len(value) < limits.get("minProperties", 0):
            _invalid(found, path, value, f"should have at least {limits['minProperties']} properties")
            return
        most = limits.get("maxProperties")
        if most is not None and len(value) > most:
            found.append(FieldError(_at(path), "Too many", f"must have at most {most} items", len(value)))
            return
    before = old if type(old) is dict else {}
    properties, additional = schema.properties, schema.additional
    if schema.closed or additional is not None:
        for key, part in value.items():
            if key in properties:
                continue
            where = bounded(f"{path}.{key}")
            if additional is not None:
                _value(part, additional, where, found, before.get(key, MISSING))
            elif len(found) < MOST_FOUND:
                found.append(errors.invalid_value(_at(path), "", f"{where} in body is a forbidden property"))
    for name, known in properties.items():
        if name in value:
            _value(value[name], known, f"{path}.{name}" if path else name, found, before.get(name, MISSING))
    for name in schema.required:
        if name not in value:
            found.append(errors.required(_at(f"{path}.{name}")))


def _list(value: list[Any], schema: Schema, path: str, found: list[FieldError], old: Any) -> None:
    items = schema.items
    if items is not None:
        before = _earlier(value, schema, old)
        for index, part in enumerate(value):
            _value(part, items, f"{path}[{index}]", found, before[index])
    limits = schema.limits
    if not limits:
        return
    if len(value) < limits.get("minItems", 0):
        _invalid(found, path, len(value), f"should have at least {limits['minItems']} items")
    most = limits.get("maxItems")
    if most is not None and len(value) > most:
        found.append(FieldError(_at(path), "Too many", f"must have at most {most} items", len(value)))
    if limits.get("uniqueItems") and len({canonical(part) for part in value}) < len(value):
        _invalid(found, path, "", "shouldn't contain duplicates")


def _earlier(value: list[Any], schema: Schema, old: Any) -> list[Any]:
    """Return what each item was before: by its key in a list of type map, else unknown (upstream: CorrelatedObject)."""
    if type(old) is not list or not old:
        return [MISSING] * len(value)
    if schema.list_type == "map":
        known = {key_of(part, schema): part for part in old if type(part) is dict}
        return [known.get(key_of(p, schema), MISSING) if type(p) is dict else MISSING for p in value]
    return [MISSING] * len(value)


def key_of(item: Object, schema: Schema) -> bytes:
    """Return the identity of an item of a list of type map, its keys' defaults put in."""
    properties = schema.items.properties if schema.items is not None else {}
    found = []
    for name in schema.list_keys:
        known = properties.get(name)
        absent = known.default if known is not None and known.default is not MISSING else None
        found.append(item.get(name, absent))
    return canonical(found)


def _string(value: str, schema: Schema, path: str, found: list[FieldError]) -> None:
    limits = schema.limits
    if limits:
        most = limits.get("maxLength")
        if most is not None and len(value) > most:
            found.append(FieldError(_at(path), "Too long", f"may not be more than {most} bytes", value))
        if len(value) < limits.get("minLength", 0):
            _invalid(found, path, value, f"should be at least {limits['minLength']} chars long")
        pattern = limits.get("pattern")
        if pattern is not None and (why := _unmatched(pattern, value)):
            _invalid(found, path, value, f"should match '{why}'")
    if schema.format and not formats.valid(schema.format, value):
        why = f'{path} in body must be of type {schema.format}: "{value}"'
        found.append(TypeInvalid(_at(path), "Invalid value", why, value))


def _unmatched(pattern: str, value: str) -> str:
    """Return the pattern if a value does not match it, with the reason where it cannot be compiled; else nothing.

    A definition can have such a pattern if another server, or an older version, has stored it.
    """
    try:
        return "" if patterns.found(pattern, value) else pattern
    except patterns.PatternError as error:
        return f"{pattern}, but pattern is invalid: {error}"


def _number(value: float, schema: Schema, path: str, found: list[FieldError]) -> None:
    source, limits = schema.source, schema.limits
    for name, size in (("int32", _INT32), ("int64", _INT64)):
        if schema.format == name and schema.type == "integer" and not -size <= value < size:
            _invalid(found, path, value, f"must be of type integer with format {name}")
    factor = limits.get("multipleOf")
    if factor and not _is_multiple(value, factor):
        _invalid(found, path, value, f"should be a multiple of {_plain(factor)}")
    most, least = limits.get("maximum"), limits.get("minimum")
    if most is not None:
        if source.get("exclusiveMaximum"):
            if value >= most:
                _invalid(found, path, value, f"should be less than {_plain(most)}")
        elif value > most:
            _invalid(found, path, value, f"should be less than or equal to {_plain(most)}")
    if least is not None:
        if source.get("exclusiveMinimum"):
            if value <= least:
                _invalid(found, path, value, f"should be greater than {_plain(least)}")
        elif value < least:
            _invalid(found, path, value, f"should be greater than or equal to {_plain(least)}")


def _is_multiple(value: float, factor: float) -> bool:
    try:
        quotient = value / factor
        return abs(quotient - round(quotient)) <= 1e-9
    except OverflowError:  # beyond doubles, as upstream
        return False


def _plain(number: float) -> str:
    """Print a float as Go's %v does."""
    if float(number).is_integer() and abs(number) < 1e21:
        return str(int(number))
    return repr(float(number))


def _logical(value: Any, schema: Schema, path: str, found: list[FieldError]) -> None:
    def tried(part: Schema) -> list[FieldError]:
        inner: list[FieldError] = []
        _value(value, part, path, inner, MISSING)
        return inner

    def refuse(why: str) -> None:
        found.append(errors.invalid_value(NOWHERE, "", f'"{path}" must {why}'))

    if schema.any_of:
        failures = [tried(part) for part in schema.any_of]
        if all(failures):
            refuse("validate at least one schema (anyOf)")
            found += failures[closest(value, schema.any_of)]
    if schema.one_of:
        failures = [tried(part) for part in schema.one_of]
        fits = sum(not failure for failure in failures)
        if fits == 0:
            refuse("validate one and only one schema (oneOf). Found none valid")
            found += failures[closest(value, schema.one_of)]
        elif fits > 1:
            refuse(f"validate one and only one schema (oneOf). Found {fits} valid alternatives")
    if schema.all_of:
        failures = [tried(part) for part in schema.all_of]
        bad = sum(bool(failure) for failure in failures)
        for failure in failures:
            found += failure
        if bad:
            refuse("validate all the schemas (allOf)" + (". None validated" if bad == len(failures) else ""))
    if schema.negation is not None and not tried(schema.negation):
        refuse("not validate the schema (not)")
