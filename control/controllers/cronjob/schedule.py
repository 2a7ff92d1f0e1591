"""Cron schedules: five fields or a named one, and the moments that they mean in a time zone.

Where both the day of the month and the day of the week are given, either will do; a field with a star gives way. A time
that daylight saving skips is not had that day. (The behaviour is that of robfig/cron, which upstream uses.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = {m: i for i, m in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}
_DAYS = {d: i for i, d in enumerate("sun mon tue wed thu fri sat".split())}
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_HORIZON = timedelta(days=5 * 366)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Sets of minutes, hours, days, months and weekdays; or a fixed interval (`every`, seconds)."""

    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    any_day: bool = True
    any_weekday: bool = True
    every: float = 0.0

    def after(self, moment: datetime, zone: tzinfo = UTC) -> datetime | None:
        """Return the first moment later than the given one, in UTC; None where none comes within five years."""
        return next(self.upcoming(moment, zone), None)

    def upcoming(self, moment: datetime, zone: tzinfo = UTC) -> Iterator[datetime]:
        """Yield the moments later than the given one, in UTC."""
        if self.every:
            moment = moment.replace(microsecond=0)
            while True:
                moment += timedelta(seconds=self.every)
                yield moment.astimezone(UTC)
        local = moment.astimezone(zone)
        day = local.date()
        end = (local + _HORIZON).date()
        while day <= end:
            if day.month in self.months and self._on(day.day, (day.weekday() + 1) % 7):
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
                        found = wall.astimezone(UTC)
                        # A wall time that does not exist comes back as another one.
                        if found > moment and found.astimezone(zone).replace(tzinfo=None) == wall.replace(tzinfo=None):
                            yield found
            day += timedelta(days=1)

    def _on(self, day: int, weekday: int) -> bool:
        by_day, by_weekday = day in self.days, weekday in self.weekdays
        if self.any_day or self.any_weekday:
            return by_day and by_weekday
        return by_day or by_weekday


def parse(text: str) -> Schedule:
    """Read a schedule; ValueError where it cannot be read."""
    if text.startswith("@every "):
        seconds = sum(float(n) * _UNITS[u] for n, u in re.findall(r"([0-9.]+)(h|ms|us|µs|ns|m|s)", text[7:]))
        if not seconds:
            raise ValueError(f"failed to parse duration {text}")
        return Schedule(every=max(1.0, float(int(seconds))))
    fields = _NAMED.get(text, text).split()
    if len(fields) != 5:
        raise ValueError(f"expected exactly 5 fields, found {len(fields)}: {text}")
    return Schedule(
        minutes=_field(fields[0], 0, 59, {}),
        hours=_field(fields[1], 0, 23, {}),
        days=_field(fields[2], 1, 31, {}),
        months=_field(fields[3], 1, 12, _MONTHS),
        weekdays=_field(fields[4], 0, 6, _DAYS),
        any_day=fields[2].startswith(("*", "?")),
        any_weekday=fields[4].startswith(("*", "?")),
    )


def _field(text: str, low: int, high: int, words: dict[str, int]) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        if span in ("*", "?"):
            first, last = low, high
        else:
            start, dash, end = span.partition("-")
            first = _number(start, words)
            last = _number(end, words) if dash else (high if slash else first)
        if not low <= first <= last <= high or (slash and int(step) < 1):
            raise ValueError(f"field out of bounds: {part}")
        found.update(range(first, last + 1, int(step) if slash else 1))
    return frozenset(found)


def _number(text: str, words: dict[str, int]) -> int:
    return words[text.lower()] if text.lower() in words else int(text)
