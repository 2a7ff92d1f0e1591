"""Values of the fields that a path names, in all items of lists: `spec.rules[*].host`."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from kube.json_object import Object

_NOTHING: Object = {}


@functools.cache
def _keys(path: str) -> list[str]:
    return path.split(".")


def field_value(obj: Object | None, path: str) -> Any:
    """Return the value of the field that a path without lists names, None if the field or a part above it is absent."""
    found: Any = obj
    for key in _keys(path):
        found = (found or _NOTHING).get(key)
    return found


def field_values(obj: Object | None, path: str, at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path, with indexes, and the value of every field that is neither absent nor empty; `at` is the object's."""
    steps = [(step.removesuffix("[*]"), step.endswith("[*]")) for step in path.split(".")]
    yield from _values(obj or {}, steps, at)


def _values(found: Any, steps: list[tuple[str, bool]], path: str) -> Iterator[tuple[str, Any]]:
    if not found:
        return
    if not steps:
        yield path, found
        return
    (key, repeated), rest = steps[0], steps[1:]
    place = f"{path}.{key}" if path else key
    value = found.get(key)
    if not repeated:
        yield from _values(value, rest, place)
        return
    for index, item in enumerate(value or ()):
        yield from _values(item, rest, f"{place}[{index}]")


def values_in(obj: Object | None, *paths: str) -> frozenset[str]:
    """Return the texts in the fields, such as those that an update may keep."""
    return frozenset(value for path in paths for _, value in field_values(obj, path))
