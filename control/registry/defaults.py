"""Defaults as rows: the path of a field, and its value or the rows of a part that kinds share.

    spec.type                 set if it is absent or has the zero value of its type
    spec.replicas, absent(1)  a pointer in Go's types: only set if it is absent, as its zero value means something
    spec.ports[*].protocol    the field of every item
    spec.{a,b}                several fields

Fields of a part that is absent get no defaults; a part may be a default itself: `("spec", absent({}))`. A value may be a
function of the part. Rows are compiled to one function, as those of validation are (rows.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import msgspec

from control.registry.rows import indented, paths_of
from kube.json_object import Object

Row = tuple[str, Any]


class Absent(msgspec.Struct, frozen=True):
    """The default of a pointer, for a field that is absent or has one of the `unset` values."""

    value: Any
    unset: tuple[Any, ...]


def absent(value: Any, *unset: Any) -> Absent:
    return Absent(value, (None, *unset))


class Defaults:
    """Defaults of the fields of an object, which are together a default of the object."""

    def __init__(self, *rows: Row) -> None:
        self.rows = [row for paths, value in rows for path in paths_of(paths) for row in _flat(path, value)]

    def __call__(self, obj: Object) -> None:
        self._compiled(obj)

    @cached_property
    def _compiled(self) -> Callable[[Object], None]:
        scope: dict[str, Any] = {}
        source = "\n".join(["def default(obj):", *indented(_fields(self.rows, "obj", scope)), " return"])
        exec(source, scope)  # noqa: S102 - of paths and values in this repository
        default: Callable[[Object], None] = scope["default"]
        return default


def _flat(path: str, value: Any) -> Iterator[Row]:
    if isinstance(value, Defaults):
        yield from ((f"{path}.{below}", each) for below, each in value.rows)
    else:
        yield path, value


def _fields(rows: Iterable[Row], place: str, scope: dict[str, Any]) -> Iterator[str]:
    """Yield lines for the rows of a part; `scope` gets the names that they use."""
    for (step, is_leaf), group in itertools.groupby(rows, lambda row: (row[0].partition(".")[0], "." not in row[0])):
        below = [(path.partition(".")[2], value) for path, value in group]
        key, part = step.removesuffix("[*]"), f"part{len(scope)}"
        found = f"{place}.get({key!r})"
        if is_leaf:
            for _, value in below:
                yield from _leaf(place, key, value, scope)
            continue
        scope[part] = None
        if step.endswith("[*]"):
            yield f"for {part} in {found} or ():"
        else:
            yield f"{part} = {found}"
            yield f"if {part} is not None:"
        yield from indented(_fields(below, part, scope))


def _leaf(place: str, key: str, value: Any, scope: dict[str, Any]) -> Iterator[str]:
    found = f"{place}.get({key!r})"
    missing = f"not {found}"
    if isinstance(value, Absent):
        missing = f"{found} is None" if value.unset == (None,) else f"{found} in {value.unset!r}"
        value = value.value
    text = repr(value)  # a new dict or list for every object
    if callable(value):
        name = f"value{len(scope)}"
        scope[name], text = value, f"{name}({place})"
    yield f"if {missing}: {place}[{key!r}] = {text}"
