"""Comparison of the new and the old object: immutable fields, and the differences that an error message lists."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from kube.errors import FieldError, invalid_value
from kube.json_object import Object
from kube.quantity import QuantityError, parse

IMMUTABLE = "field is immutable"
_NOTHING: Object = {}


@functools.cache
def _steps(path: str) -> list[str]:
    return path.split(".")


def validate_immutable(obj: Object, old: Object, *paths: str) -> list[FieldError]:
    """Check that fields are as they were; absent and empty are the same (ValidateImmutableField upstream)."""
    errors: list[FieldError] = []
    for path in paths:
        value: Any = obj
        before: Any = old
        for step in _steps(path):
            value, before = (value or _NOTHING).get(step), (before or _NOTHING).get(step)
        if value != before and (value or before):
            errors.append(invalid_value(path, value, IMMUTABLE))
    return errors


def same(one: object, other: object) -> bool:
    """Compare two JSON shapes as their meaning: absent and empty are equal, and so are 1000m and 1."""
    if one == other:  # mostly, and compared in C
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        # In the order of the fields: that of a set would make the cost differ from process to process.
        return all(same(value, other.get(name)) for name, value in one.items()) and all(
            name in one or same(None, value) for name, value in other.items()
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if one in _EMPTY and other in _EMPTY:
        return True
    if isinstance(one, str | int | float) and isinstance(other, str | int | float):
        try:
            return type(one) is not type(other) and parse(one) == parse(other)
        except QuantityError:
            return False
    return False


_EMPTY: tuple[object, ...] = (None, [], "", {})


def differences(one: object, other: object) -> list[str]:
    """Return the lines that differ between two JSON shapes, first as it was and then as it is."""
    return _differences(one, other, "")


def _differences(one: object, other: object, path: str) -> list[str]:
    if same(one, other):
        return []
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            line
            for k in sorted(one.keys() | other.keys())
            for line in _differences(one.get(k), other.get(k), f"{path}.{k}")
        ]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [line for i, (a, b) in pairs for line in _differences(a, b, f"{path}[{i}]")]
    show = [msgspec.json.encode(v).decode() for v in (one, other)]
    return [f"-  {path.lstrip('.')}: {show[0]}", f"+  {path.lstrip('.')}: {show[1]}"]
