"""A clock that stands until it is moved."""

from __future__ import annotations

import asyncio
import heapq
import math
from datetime import datetime, timedelta

RESOLUTION = 2.0**-20
"""Seconds. A power of two: sums and differences of the clock's times are exact, so no deadline is missed by a rounding error."""


class VirtualClock:
    """A `kube.clock.Clock` for one event loop. Sleepers wake in the order of their times, and of their calls."""

    def __init__(self, start: datetime) -> None:
        self._start, self._elapsed = start, 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
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
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls += 1
        due = self._elapsed + math.ceil(seconds / RESOLUTION) * RESOLUTION
        heapq.heappush(self._sleepers, (due, self._calls, woken))
        await woken

    def next_at(self) -> float | None:
        """Return the time (as `monotonic`) at which the next sleeper wakes, None if there is none."""
        while self._sleepers and self._sleepers[0][2].done():  # cancelled
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def move(self, to: float) -> None:
        """Move to a time (as `monotonic`) and wake the sleepers of that time; there are none before."""
        self._elapsed = max(self._elapsed, to)
        while self._sleepers and self._sleepers[0][0] <= to:
            woken = heapq.heappop(self._sleepers)[2]
            if not woken.done():
                woken.set_result(None)
