"""Time as a value that is passed in, so that back-offs, leases and grace periods can be tested in virtual time."""

from __future__ import annotations

import asyncio
import heapq
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """A source of time: `now` is the wall clock (UTC), `monotonic` and `boottime` count seconds for intervals.

    While the machine is suspended `boottime` continues, and `monotonic` and sleepers stand still.
    """

    def now(self) -> datetime: ...
    def monotonic(self) -> float: ...
    def boottime(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class FakeClock:
    """A clock that moves only in `advance`, which wakes sleepers in order."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start, self._elapsed, self._suspended = start, 0.0, 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0
        self._asleep = asyncio.Event()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.boottime())

    def monotonic(self) -> float:
        return self._elapsed

    def boottime(self) -> float:
        return self._elapsed + self._suspended

    def suspend(self, seconds: float) -> None:
        """Let time pass as a suspended machine does."""
        self._suspended += seconds

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator or NTP does."""
        self._start += timedelta(seconds=seconds)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._elapsed + seconds, self._count, future))
        self._asleep.set()
        await future

    async def sleeping(self) -> None:
        """Return when a task sleeps: for tests whose tasks do real work first."""
        while not self._sleepers:
            self._asleep.clear()
            await self._asleep.wait()

    async def advance(self, seconds: float) -> None:
        """Move time forward, waking each sleeper at its moment and letting it run."""
        await settle()
        end = self._elapsed + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, future = heapq.heappop(self._sleepers)
            self._elapsed = max(self._elapsed, due)
            if not future.done():
                future.set_result(None)
                await settle()
        self._elapsed = end
        await settle()


async def settle(turns: int = 20) -> None:
    """Let everything that is ready to run, run."""
    for _ in range(turns):
        await asyncio.sleep(0)


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
