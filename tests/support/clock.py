"""A clock of virtual time, and the end of what is ready to run."""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta


class FakeClock:
    """A clock that moves only in `advance`, which wakes sleepers in order."""

    steady = False

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

    async def sleep_deferrable(self, seconds: float) -> None:
        await self.sleep(seconds)

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
