"""The alias for an API object, or a part of one, as decoded JSON."""

from __future__ import annotations

from typing import Any

import msgspec

Object = dict[str, Any]
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of msgspec for bytes that are no JSON: strings that are no UTF-8, and deep nesting, have their own."""


def copy_json(value: Any) -> Any:
    """Return a copy of decoded JSON that shares no dict or list with it."""
    if isinstance(value, dict):
        return {key: copy_json(part) for key, part in value.items()}
    if isinstance(value, list):
        return [copy_json(part) for part in value]
    return value


def without_empty(value: Any) -> Any:
    """Return a copy of decoded JSON without null, empty lists and empty objects in any object within it."""
    if isinstance(value, dict):
        return {key: without_empty(part) for key, part in value.items() if part not in (None, [], {})}
    return [without_empty(part) for part in value] if isinstance(value, list) else value


def count_values(value: Any) -> int:
    """Return how many values decoded JSON has: itself and all within it."""
    if isinstance(value, dict):
        return 1 + sum(map(count_values, value.values()))
    return 1 + sum(map(count_values, value)) if isinstance(value, list) else 1


def identical(a: Any, b: Any) -> bool:
    """Return whether two JSON values are equal in type and value at each place; for Python's `==`, true is 1 and 1 is 1.0."""
    if a is b:
        return True
    if type(a) is not type(b) or a != b:
        return False
    return not isinstance(a, dict | list) or canonical(a) == canonical(b)


def canonical(value: Any) -> bytes:
    """Return a text that is the same for identical values, whatever the order of their keys, and for these alone."""
    return msgspec.json.encode(value, order="deterministic")


def go_type(value: Any) -> str:
    """Return the type that a value decoded from JSON has in Go, for upstream's messages."""
    names = {str: "string", bool: "bool", int: "int64", float: "float64", list: "[]interface {}", type(None): "<nil>"}
    return names.get(type(value), "map[string]interface {}")
