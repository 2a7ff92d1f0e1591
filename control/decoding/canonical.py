"""The values that have a form of their own: quantities, base64 and times, checked and rewritten as upstream's decoder does.

To a Struct they are plain strings. Which fields hold them is found once a type, as a plan of only those branches that lead to
one, so that an object without any costs next to nothing. A quantity is stored in its canonical form ("0.5" as "500m"), a time
in UTC and to the second, or to the microsecond where the field is a MicroTime.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Callable
from typing import Any

import msgspec

from kube.clock import format_micro_time, format_time, parse_time
from kube.quantity import canonical
from kube.schema.fields import FieldType, fields

Rewrite = Callable[[Any], Any]

_TIME_NAMES = ("startedAt", "finishedAt", "timeAdded", "time")
_MICRO_NAMES = ("renewTime", "acquireTime", "eventTime", "lastObservedTime", "pingTime")
_BYTE_MAPS = {("core_v1.Secret", "data"), ("core_v1.ConfigMap", "binaryData")}
_PLAIN_TIME = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ")


def rewrite(obj: dict[str, Any], struct: type[msgspec.Struct]) -> None:
    """Bring an object's special values into their one form, in place; raises ValueError in upstream's words."""
    for key, change in _plan(struct):
        value = obj.get(key)
        if value is not None:
            obj[key] = change(value)


@functools.cache
def _plan(struct: type[msgspec.Struct]) -> tuple[tuple[str, Rewrite], ...]:
    return _make_plan(struct, ())


def _make_plan(
    struct: type[msgspec.Struct], above: tuple[type[msgspec.Struct], ...]
) -> tuple[tuple[str, Rewrite], ...]:
    if struct in above:
        return ()  # types that hold themselves (JSON schemas) hold nothing special
    name = f"{struct.__module__.rpartition('.')[2]}.{struct.__name__}"
    steps = []
    for field in fields(struct):
        key = field.name
        change = _change(field.type, key, field.facts.format, (name, key) in _BYTE_MAPS, (*above, struct))
        if change is not None:
            steps.append((key, change))
    return tuple(steps)


def _change(
    type_: FieldType, key: str, form: str, byte_map: bool, above: tuple[type[msgspec.Struct], ...]
) -> Rewrite | None:
    if type_.kind == "quantity":
        return canonical  # a plain number is only a number
    if type_.struct is not None:
        steps = _make_plan(type_.struct, above)
        return functools.partial(_struct, steps) if steps else None
    if type_.item is not None:
        inner = checked_base64 if byte_map else _change(type_.item, "", "", False, above)
        return None if inner is None else functools.partial(_each if type_.kind == "list" else _values, inner)
    if type_.kind != "string":
        return None
    if form == "byte":
        return checked_base64
    if key in _MICRO_NAMES:
        return functools.partial(utc_time, micro=True)
    return utc_time if key.endswith(("Time", "Timestamp")) or key in _TIME_NAMES else None


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
    """Return base64 text as it is; raises ValueError with the place of the first wrong character."""
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        wrong = re.search("[^A-Za-z0-9+/]", text)
        place = wrong.start() if wrong and wrong.group() != "=" else len(text) // 4 * 4
        raise ValueError(f"illegal base64 data at input byte {place}") from None
    return text


def utc_time(text: str, micro: bool = False) -> str:
    """Return a time in UTC as upstream writes it; raises ValueError where it is not RFC 3339."""
    if _PLAIN_TIME.fullmatch(text) and not micro:
        return text
    if not text:
        return text
    try:
        moment = parse_time(text)
    except ValueError:
        layout = "2006-01-02T15:04:05.000000Z07:00" if micro else "2006-01-02T15:04:05Z07:00"
        raise ValueError(f'parsing time "{text}" as "{layout}": cannot parse "{text}" as "2006"') from None
    return format_micro_time(moment) if micro else format_time(moment)
