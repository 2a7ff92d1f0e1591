"""Additional printer columns of custom resource definitions, and the format of their cells."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from control.registry.columns import NAME, Column
from control.registry.tables import age
from control.schemas import jsonpath
from kube.clock import parse_time
from kube.json_object import Object

_DEFAULT: list[Object] = [
    {
        "name": "Age",
        "type": "date",
        "jsonPath": ".metadata.creationTimestamp",
        "description": "When the object was created, seen from now.",
    }
]


class Columns:
    """The columns of one version."""

    def __init__(self, asked: list[Object] | None) -> None:
        shown = asked or _DEFAULT
        self._asked = [(c.get("jsonPath", ""), c.get("type", "")) for c in shown]
        more = [
            Column(
                c.get("name", ""),
                description=c.get("description") or "",
                type=c.get("type", ""),
                format=c.get("format") or "",
                priority=c.get("priority") or 0,
            )
            for c in shown
        ]
        self.columns = (NAME, *more)

    def row(self, obj: Object, now: datetime) -> list[Any]:
        """Return the cells of an object, None if it has nothing to show."""
        cells: list[Any] = [obj.get("metadata", {}).get("name", "")]
        room = jsonpath.Room()
        for path, kind in self._asked:
            try:
                found = jsonpath.find(path, obj, room)
            except jsonpath.PathError:
                found = []
            cells.append(_CELLS.get(kind, _nothing)(found[0], now) if found else None)
        return cells


def _nothing(value: Any, now: datetime) -> Any:
    return None


def _string(value: Any, now: datetime) -> Any:
    if isinstance(value, str):
        return value
    if value is None:
        return "<nil>" if value is None else value
    return msgspec.json.encode(value).decode()


def _integer(value: Any, now: datetime) -> Any:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _number(value: Any, now: datetime) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _boolean(value: Any, now: datetime) -> Any:
    return value if isinstance(value, bool) else None


def _date(value: Any, now: datetime) -> Any:
    if not isinstance(value, str):
        return None
    try:
        parse_time(value)
    except ValueError:
        return "<invalid>"
    return age(value, now)


_CELLS: dict[str, Callable[[Any, datetime], Any]] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "date": _date,
}
