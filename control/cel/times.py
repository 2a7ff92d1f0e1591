"""The parts of a timestamp in a time zone, and of a duration."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from control.cel.errors import EvaluationError, no_overload
from control.cel.values import SECOND, Duration, Timestamp, shown
from kube.bounded_cache import bounded_cache

Function = Callable[..., Any]


_LONGEST_ZONE = 64
"""Characters of a time zone's name; a longer one is looked for in no file."""


def without_file(name: str) -> bool:
    """Return whether a time zone is UTC or an offset from it."""
    return name in ("", "UTC") or _offset(name)


def _offset(name: str) -> bool:
    return name[:1] in "+-" or name[:1].isdigit()


def _zone(name: str) -> Any:
    found = _known_zone(name) if len(name) <= _LONGEST_ZONE else None
    if found is None:
        raise EvaluationError(f"unknown time zone {shown(name)}")
    return found


@bounded_cache(1024)
def _known_zone(name: str) -> Any:
    """Return a time zone, None if there is none: it was looked for in files."""
    try:
        if _offset(name):
            sign = -1 if name.startswith("-") else 1
            hours, minutes = name.lstrip("+-").split(":")
            return timezone(sign * timedelta(hours=int(hours), minutes=int(minutes)))
        return ZoneInfo(name)
    except (ValueError, ZoneInfoNotFoundError, OSError):
        return None


def _part(read: Callable[[datetime], int], of_duration: int = 0, *, milliseconds: bool = False) -> Function:
    def function(a: Any, zone: Any = "UTC") -> int:
        if type(a) is Duration and of_duration:
            whole = abs(a.ns) // of_duration
            if milliseconds:
                whole = abs(a.ns) % SECOND // of_duration
            return -whole if a.ns < 0 else whole
        if type(a) is not Timestamp:
            raise no_overload()
        if milliseconds:
            return int(a.ns % SECOND // 1_000_000)
        if type(zone) is not str:
            raise no_overload()
        try:
            return read(datetime.fromtimestamp(a.ns // SECOND, _zone(zone)))
        except (ValueError, OverflowError):
            raise EvaluationError("timestamp overflow") from None

    return function


FUNCTIONS: dict[str, Function] = {
    "getFullYear": _part(lambda t: t.year),
    "getMonth": _part(lambda t: t.month - 1),
    "getDayOfYear": _part(lambda t: t.timetuple().tm_yday - 1),
    "getDayOfMonth": _part(lambda t: t.day - 1),
    "getDate": _part(lambda t: t.day),
    "getDayOfWeek": _part(lambda t: (t.weekday() + 1) % 7),
    "getHours": _part(lambda t: t.hour, 3600 * SECOND),
    "getMinutes": _part(lambda t: t.minute, 60 * SECOND),
    "getSeconds": _part(lambda t: t.second, SECOND),
    "getMilliseconds": _part(lambda t: 0, 1_000_000, milliseconds=True),
}
