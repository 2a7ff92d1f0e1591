"""Queue of jobs that run in slices, so that DNS answers and the Service proxy run between them.

Jobs are in lanes, which are served round robin: thousands of jobs of one namespace delay those of others by one of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator

log = logging.getLogger(__name__)
JOBS_PER_YIELD = 10
"""Number of jobs after which the queue yields to the event loop. Long jobs yield themselves."""
Job = Callable[[], Iterator[None]]


class WorkQueue:
    """Lanes of jobs, of which one runs at a time. A job is an iterator; other tasks run whenever it yields."""

    def __init__(self) -> None:
        self._lanes: dict[str, deque[tuple[Job, Collection[str]]]] = {}
        """Jobs that wait, by lane in the order in which lanes are served, each with the lanes that go before it."""
        self._added, self._done = asyncio.Event(), asyncio.Event()
        self._done.set()
        self._count = 0
        """Jobs that are done."""
        self.busy = False
        """True if any job is waiting or running."""

    def add(self, job: Job, lane: str = "", after: Collection[str] = ()) -> None:
        """Add a job at the end of a lane. Jobs that wait in the lanes `after` when it is next run before it."""
        self.busy = True
        self._lanes.setdefault(lane, deque()).append((job, after))
        self._added.set()
        self._done.clear()

    def lanes(self) -> list[str]:
        """Return the lanes in which jobs wait."""
        return list(self._lanes)

    async def join(self) -> None:
        """Wait until all jobs added so far are done."""
        await self._done.wait()

    async def run(self) -> None:
        """Run jobs until cancelled. A job that raises is logged and dropped."""
        while True:
            await self._added.wait()
            self._added.clear()
            while self._lanes:
                await self._run_next(next(iter(self._lanes)))
            self.busy = False
            self._done.set()

    async def _run_next(self, lane: str) -> None:
        job, after = self._lanes[lane].popleft()
        waiting = self._lanes.pop(lane)
        if waiting:
            self._lanes[lane] = waiting  # served again after all others
        for each in after:
            while each in self._lanes and each != lane:
                await self._run_next(each)
        try:
            for _ in job():
                await asyncio.sleep(0)
        except Exception:
            log.exception("a change is missing from network policies")
        self._count += 1
        if not self._count % JOBS_PER_YIELD:
            await asyncio.sleep(0)
