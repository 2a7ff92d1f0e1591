"""Cron schedules: five fields or a name such as @daily, and their times in a time zone.

If both the day of the month and the day of the week are given, a match of either suffices; a field with a star (but not with
a step) is ignored. A time that daylight saving skips does not occur that day, one that it repeats occurs twice. (The
behaviour is that of robfig/cron, which upstream uses.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

from kube import duration
from kube.bounded_cache import bounded_cache

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
_INTEGER = re.compile("[+]?[0-9]+")
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
        """Return the first moment later than the given one, in UTC; None if none comes within five years."""
        return next(self.upcoming(moment, zone), None)

    def upcoming(self, moment: datetime, zone: tzinfo = UTC) -> Iterator[datetime]:
        """Yield the moments later than the given one, in UTC."""
        if self.every:
            moment = moment.replace(microsecond=0)
            while True:
                moment += timedelta(seconds=self.every)
                yield moment.astimezone(UTC)
        local = moment.astimezone(zone)
        day, hour = local.date(), local.hour
        end = (local + _HORIZON).date()
        while day <= end:
            if day.month in self.months and self._on(day.day, (day.weekday() + 1) % 7):
                yield from (found for found in self._of_day(day, hour, zone) if found > moment)
            day, hour = day + timedelta(days=1), 0

    def _of_day(self, day: date, hour: int, zone: tzinfo) -> Iterator[datetime]:
        """Yield the moments of one day on which the schedule means something, in order; maybe those before `hour` too."""
        start = datetime(day.year, day.month, day.day, tzinfo=zone)
        offset = start.utcoffset()
        steady = (start + timedelta(days=1)).utcoffset() == offset
        hours = [each for each in sorted(self.hours) if each >= hour or not steady]
        minutes = sorted(self.minutes)
        walls = (start.replace(hour=each, minute=minute) for each in hours for minute in minutes)
        if steady:
            for wall in walls:
                yield wall.replace(tzinfo=UTC) - (offset or timedelta())
            return
        # The clocks are changed: a time may be there twice, or (when it comes back as another one) not at all.
        found = set()
        for wall in walls:
            for moment in (wall.replace(fold=fold).astimezone(UTC) for fold in (0, 1)):
                if moment.astimezone(zone).replace(tzinfo=None, fold=0) == wall.replace(tzinfo=None):
                    found.add(moment)
        yield from sorted(found)

    def _on(self, day: int, weekday: int) -> bool:
        by_day, by_weekday = day in self.days, weekday in self.weekdays
        if self.any_day or self.any_weekday:
            return by_day and by_weekday
        return by_day or by_weekday


@bounded_cache(1000)
def parse(text: str) -> Schedule:
    """Read a schedule; ValueError where it cannot be read."""
    if text.startswith("@every "):
        try:
            seconds = duration.parse(text[7:])
        except ValueError as error:
            raise ValueError(f"failed to parse duration {text}") from error
        if seconds <= 0:
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
        any_day=_starred(fields[2]),
        any_weekday=_starred(fields[4]),
    )


def _starred(text: str) -> bool:
    return any(part in ("*", "?", "*/1", "?/1") for part in text.split(","))


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
        every = _number(step, {}) if slash else 1
        if not low <= first <= last <= high or every < 1:
            raise ValueError(f"field out of bounds: {part}")
        found.update(range(first, last + 1, every))
    return frozenset(found)


def _number(text: str, words: dict[str, int]) -> int:
    if text.lower() in words:
        return words[text.lower()]
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"failed to parse int from {text}")
    return int(text)
