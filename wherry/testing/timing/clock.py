"""A clock that stands until it is moved."""

from __future__ import annotations

import asyncio
import heapq
import math
from datetime import datetime, timedelta

RESOLUTION = 2.0**-20
"""Seconds. A power of two: sums and differences of the clock's times are exact, and no deadline is missed by rounding."""


_Sleepers = list[tuple[float, int, asyncio.Future[None]]]


class VirtualClock:
    """A `kube.clock.Clock` for one event loop. Sleepers wake in the order of their times, and of their calls."""

    steady = True

    def __init__(self, start: datetime) -> None:
        self._start, self._elapsed = start, 0.0
        self._sleepers: _Sleepers = []
        self._deferred: _Sleepers = []
        self._calls = 0

    def now(self) -> datetime:
        # Rounded up: a sleeper that computed its time from `now` does not wake a microsecond before it.
        return self._start + timedelta(microseconds=math.ceil(self._elapsed * 1e6))

    def monotonic(self) -> float:
        return self._elapsed

    def boottime(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        await self._sleep(self._sleepers, seconds)

    async def sleep_deferrable(self, seconds: float) -> None:
        await self._sleep(self._deferred, seconds)

    async def _sleep(self, sleepers: _Sleepers, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls += 1
        due = self._elapsed + math.ceil(seconds / RESOLUTION) * RESOLUTION
        heapq.heappush(sleepers, (due, self._calls, woken))
        await woken

    def next_at(self) -> float | None:
        """Return the time (as `monotonic`) at which the next sleeper wakes, None if there is none."""
        while self._sleepers and self._sleepers[0][2].done():  # cancelled
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def move(self, to: float) -> None:
        """Move to a time (as `monotonic`) and wake the sleepers of that time; there are none before."""
        self._elapsed = max(self._elapsed, to)
        self._wake(self._sleepers)

    def wake_deferred(self) -> None:
        """Wake the deferrable sleepers whose time has come."""
        self._wake(self._deferred)

    def _wake(self, sleepers: _Sleepers) -> None:
        while sleepers and sleepers[0][0] <= self._elapsed:
            woken = heapq.heappop(sleepers)[2]
            if not woken.done():
                woken.set_result(None)
