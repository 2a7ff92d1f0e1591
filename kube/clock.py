"""Time as a value that is passed in, so that back-offs, leases and grace periods can be tested in virtual time."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """A source of time: `now` is the wall clock (UTC), `monotonic` and `boottime` count seconds for intervals.

    While the machine is suspended `boottime` continues, and `monotonic` and sleepers stand still.
    """

    @property
    def steady(self) -> bool:
        """True if the wall clock is never set, and no time passes while this process does not run."""
        ...

    def now(self) -> datetime: ...
    def monotonic(self) -> float: ...
    def boottime(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...
    async def sleep_deferrable(self, seconds: float) -> None:
        """Sleep for at least so many seconds, and longer if nothing else happens: for heartbeats and repairs."""
        ...


class SystemClock:
    """The machine's clock."""

    steady = False

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def sleep_deferrable(self, seconds: float) -> None:
        await self.sleep(seconds)


SYSTEM = SystemClock()
MOST_SECONDS = 2**63 - 1
"""Longest duration that the API accepts; objects of older versions may have longer ones, which no float holds."""


def format_time(moment: datetime) -> str:
    """Write a metav1.Time: RFC 3339, UTC, whole seconds."""
    return moment.astimezone(UTC).isoformat("T", "seconds")[:19] + "Z"  # strftime takes ten times as long


def format_micro_time(moment: datetime) -> str:
    """Write a metav1.MicroTime: RFC 3339, UTC, six digits."""
    return moment.astimezone(UTC).isoformat("T", "microseconds")[:26] + "Z"


def after(moment: datetime, seconds: float) -> datetime:
    """Return the moment that much later, or earlier; the ends of the calendar where the API's 64 bits lead beyond them."""
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return (datetime.max if seconds > 0 else datetime.min).replace(microsecond=0, tzinfo=moment.tzinfo)


def parse_time(text: str) -> datetime:
    """Read an RFC 3339 time of any precision; ValueError where it is not one."""
    parsed = datetime.fromisoformat(text)
    if parsed.tzinfo is None:
        raise ValueError(f"time without a zone: {text!r}")
    return parsed
