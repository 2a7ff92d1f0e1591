"""Times as text: RFC 3339, parsed as Go's time.Parse does and written in UTC as metav1.Time and metav1.MicroTime are.

Text in the stored form is returned after one match: what that match accepts is a date of every month. All else is parsed, so
that what is stored is a time in every encoding; Go's parser, unlike Python's, has neither week dates nor other separators.
Years are 1 to 9999: Go stores the year 0 and writes years that it cannot parse, Python has neither.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_DAY = r"(?!0000)[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_STORED = re.compile(f"{_DAY}Z")
_STORED_MICRO = re.compile(rf"{_DAY}\.[0-9]{{6}}Z")
_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_LAYOUT, _MICRO_LAYOUT = "2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05.000000Z07:00"
_SHOWN = 100
"""Characters of a text in an error."""


def utc_time(text: str) -> str:
    """Return a time in UTC and whole seconds; raises ValueError in Go's words. Empty text is no time."""
    if not text or _STORED.fullmatch(text):
        return text
    return _moment(text, _LAYOUT).isoformat("T", "seconds") + "Z"


def utc_micro_time(text: str) -> str:
    """Return a time in UTC and microseconds; raises ValueError in Go's words. Empty text is no time."""
    if not text or _STORED_MICRO.fullmatch(text):
        return text
    return _moment(text, _MICRO_LAYOUT).isoformat("T", "microseconds") + "Z"


def _moment(text: str, layout: str) -> datetime:
    """Return a time in UTC, without a zone."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        shown = text[:_SHOWN]
        raise ValueError(f'parsing time "{shown}" as "{layout}": cannot parse "{shown}" as "2006"')
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    fraction, sign, hours, minutes = found.groups()[6:]
    wrong = _out_of_range(year, month, day, hour, minute, second, int(hours or 0), int(minutes or 0))
    if not wrong:
        try:
            local = datetime(year, month, day, hour, minute, second, int((fraction or "0")[:6].ljust(6, "0")))
            offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
            return local + offset if sign == "-" else local - offset
        except (ValueError, OverflowError) as error:
            wrong = (
                "day" if isinstance(error, ValueError) else "year"
            )  # the 29th of February; beyond the calendar in UTC
    raise ValueError(f'parsing time "{text[:_SHOWN]}": {wrong} out of range')


def _out_of_range(
    year: int, month: int, day: int, hour: int, minute: int, second: int, hours: int, minutes: int
) -> str:
    """Return which part no time has, the first in Go's order; the 29th of February is left to the calendar."""
    if not 1 <= month <= 12:
        return "month"
    if not year:
        return "year"
    for name, value, most in (("hour", hour, 23), ("minute", minute, 59), ("second", second, 59)):
        if value > most:
            return name
    if hours > 24:
        return "time zone offset hour"
    if minutes > 60:
        return "time zone offset minute"
    return "" if 1 <= day <= _DAYS[month - 1] else "day"
