"""The values that have a form of their own: quantities, base64 and times, checked and rewritten as upstream's decoder does.

To a Struct they are plain strings. Which fields hold them is found once a type from their formats, as a plan of only those
branches that lead to one, so that an object without any costs next to nothing. A quantity is stored in its canonical form
("0.5" as "500m"), a time in UTC and to the second, or to the microsecond where the field is a MicroTime.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import msgspec

from control.decoding.times import utc_micro_time, utc_time
from kube import base64_text
from kube.quantity import canonical
from kube.schema.fields import FieldType, fields

Rewrite = Callable[[Any], Any]


def rewrite(obj: dict[str, Any], struct: type[msgspec.Struct]) -> None:
    """Bring an object's special values into their one form, in place; raises ValueError in upstream's words."""
    for key, change in _plan(struct):
        value = obj.get(key)
        if value is not None:
            obj[key] = change(value)


def check(value: Any, type_: FieldType, form: str) -> None:
    """Raise ValueError for a scalar that has not the form of its field."""
    change = _change(type_, form, ()) if type_.scalar else None
    if change is not None:
        change(value)


@functools.cache
def _plan(struct: type[msgspec.Struct]) -> tuple[tuple[str, Rewrite], ...]:
    return _make_plan(struct, ())


def _make_plan(
    struct: type[msgspec.Struct], above: tuple[type[msgspec.Struct], ...]
) -> tuple[tuple[str, Rewrite], ...]:
    if struct in above:
        return ()  # types that hold themselves (JSON schemas) hold nothing special
    steps = []
    for field in fields(struct):
        change = _change(field.type, field.facts.format, (*above, struct))
        if change is not None:
            steps.append((field.name, change))
    return tuple(steps)


def _change(type_: FieldType, form: str, above: tuple[type[msgspec.Struct], ...]) -> Rewrite | None:
    if type_.kind == "quantity":
        return canonical  # a plain number is only a number
    if type_.struct is not None:
        steps = _make_plan(type_.struct, above)
        return functools.partial(_struct, steps) if steps else None
    if type_.item is not None:
        inner = _change(type_.item, form, above)
        return None if inner is None else functools.partial(_each if type_.kind == "list" else _values, inner)
    return _FORMATS.get(form) if type_.kind == "string" else None


def _each(change: Rewrite, values: list[Any]) -> list[Any]:
    return [change(value) for value in values]


def _values(change: Rewrite, values: dict[str, Any]) -> dict[str, Any]:
    return {key: change(value) for key, value in values.items()}


def _struct(steps: tuple[tuple[str, Rewrite], ...], obj: dict[str, Any]) -> dict[str, Any]:
    for key, change in steps:
        value = obj.get(key)
        if value is not None:
            obj[key] = change(value)
    return obj


def checked_base64(text: str) -> str:
    """Return base64 text as Go writes it; raises ValueError with the place of the first wrong character."""
    try:
        return base64_text.canonical(text)
    except ValueError:
        wrong = re.search("[^A-Za-z0-9+/\r\n]", text)
        place = (
            wrong.start() if wrong and wrong.group() != "=" else len(text) - len(base64_text.without_breaks(text)) % 4
        )
        raise ValueError(f"illegal base64 data at input byte {place}") from None


_FORMATS: dict[str, Rewrite] = {"byte": checked_base64, "date-time": utc_time, "micro-time": utc_micro_time}
