"""Columns of `kubectl get`: a name, and the field that a cell shows or the function that computes it.

The cells of a kind are compiled to one function, as `dataclasses` compiles `__init__`: a list of 10 000 objects has
100 000 cells, and a call for each would cost more than reading the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import msgspec

from control.registry.tables import age
from kube.json_object import Object

Compute = Callable[[Object, datetime], Any]
_NOTHING: Object = {}


class Field(msgspec.Struct, frozen=True):
    """The value of a field by its path, "" for the whole object."""

    path: str
    absent: Any = ""
    """Shown if the field is absent, empty, 0 or false."""
    show: Callable[[Any], Any] | None = None
    """Turns the value, None if it is absent, into what is shown."""


class Column(msgspec.Struct, frozen=True):
    """One column as in meta.k8s.io/v1 TableColumnDefinition; priority 1 is shown with -o wide."""

    name: str
    cell: Field | Compute | None = None
    """None if the kind has a `row` of its own."""
    description: str = ""
    type: str = "string"
    format: str = ""
    priority: int = 0


NAME = Column("Name", Field("metadata.name"), "Name must be unique within a namespace.", format="name")
AGE = Column(
    "Age",
    lambda obj, now: age(obj.get("metadata", _NOTHING).get("creationTimestamp"), now),
    "Time since the object was created.",
)


def compiled_row(columns: Iterable[Column]) -> Callable[[Object, datetime], list[Any]]:
    """Return the function that returns the cells of an object at a time."""
    scope: dict[str, Any] = {"NOTHING": _NOTHING}
    parts, cells = dict[str, str](), []
    for index, column in enumerate(columns):
        cell = column.cell
        assert cell is not None, column.name
        if not isinstance(cell, Field):
            scope[f"compute{index}"] = cell
            cells.append(f"compute{index}(obj, now)")
            continue
        place, (*parents, key) = "obj", cell.path.split(".")
        for step in parents:
            text = f"{place}.get({step!r}) or NOTHING"
            place = parts.setdefault(text, f"part{len(parts)}")
        found = f"{place}.get({key!r})" if key else place
        scope[f"shown{index}"] = cell.show or cell.absent
        cells.append(f"shown{index}({found})" if cell.show else f"{found} or shown{index}")
    lines = ["def row(obj, now):", *(f"    {name} = {text}" for text, name in parts.items())]
    exec("\n".join([*lines, f"    return [{', '.join(cells)}]"]), scope)  # noqa: S102 - of paths in this repository
    found_row: Callable[[Object, datetime], list[Any]] = scope["row"]
    return found_row
