"""Queue of jobs that run in slices, so that DNS answers and the Service proxy run between them.

Jobs are in lanes, such as one for each namespace. Lanes get equal shares of the time: the next job is that of the lane that has
used least. So neither thousands of jobs of one namespace nor long ones delay those of others by more than one of them. A lane
that was empty has no claim to the time that others used meanwhile. Who waits for jobs waits for those that were added before:
a namespace whose policies are updated all the time never has an empty lane.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

log = logging.getLogger(__name__)
JOBS_PER_YIELD = 10
"""Number of jobs after which the queue yields to the event loop. Long jobs yield themselves."""
Job = Callable[[], Iterator[None]]


class _Waiting(NamedTuple):
    number: int
    """Number of jobs that were added before."""
    run: Job
    after: Collection[str]
    """Lanes whose jobs with lower numbers go before it."""


class WorkQueue:
    """Lanes of jobs, of which one runs at a time. A job is an iterator; other tasks run whenever it yields."""

    def __init__(self, timer: Callable[[], float] = time.thread_time) -> None:
        self._timer = timer
        self._lanes: dict[str, deque[_Waiting]] = {}
        """Jobs that wait, by lane; no lane is empty."""
        self._turns: list[tuple[float, int, str]] = []
        """A heap of those lanes: the time that each has used, and a number for those that have used the same."""
        self._turn_of: dict[str, int] = {}
        """The number in the valid entry of a lane."""
        self._used: dict[str, float] = {}
        """Time that lanes have used since the queue was empty; or that others had used when the lane was empty."""
        self._served = 0.0
        """Time that the lane which was served last had used."""
        self._added = asyncio.Event()
        self._numbers = self._count = 0
        """Jobs that were added, and that are done."""
        self.busy = False
        """True if any job is waiting or running."""

    @property
    def done(self) -> int:
        """Number of jobs that are done."""
        return self._count

    def add(self, job: Job, lane: str = "", after: Collection[str] = ()) -> None:
        """Add a job at the end of a lane. Jobs that wait now in the lanes `after` run before it."""
        self.busy = True
        if lane not in self._lanes:
            self._lanes[lane] = deque()
            self._enter(lane)
        self._numbers += 1
        self._lanes[lane].append(_Waiting(self._numbers, job, after))
        self._added.set()

    def lanes(self) -> list[str]:
        """Return the lanes in which jobs wait."""
        return list(self._lanes)

    async def join(self) -> None:
        """Wait until all jobs added so far are done."""
        if not self.busy:
            return
        markers = []
        for lane in self.lanes() or [""]:
            markers.append(done := asyncio.Event())
            self.add(lambda done=done: _set(done), lane)  # type: ignore[misc]
        for done in markers:
            await done.wait()

    async def run(self) -> None:
        """Run jobs until cancelled. A job that raises is logged and dropped."""
        while True:
            await self._added.wait()
            self._added.clear()
            while self._turns:
                used, number, lane = heapq.heappop(self._turns)
                if lane in self._lanes and self._turn_of[lane] == number:
                    self._served = used
                    await self._run_next(lane)
                    if lane in self._lanes:
                        self._enter(lane)
            self._used.clear()
            self._turn_of.clear()
            self._served = 0.0
            self.busy = False

    def _enter(self, lane: str) -> None:
        """Let a lane be served again, after those that have used less."""
        self._numbers += 1
        self._turn_of[lane] = self._numbers
        used = self._used[lane] = max(self._used.get(lane, 0.0), self._served)
        heapq.heappush(self._turns, (used, self._numbers, lane))

    async def _run_next(self, lane: str) -> None:
        waiting = self._lanes[lane].popleft()
        if not self._lanes[lane]:
            del self._lanes[lane]
        for each in waiting.after:
            while each in self._lanes and each != lane and self._lanes[each][0].number < waiting.number:
                await self._run_next(each)
        used = 0.0
        try:
            job = waiting.run()
            while True:
                began = self._timer()
                try:
                    next(job)
                except StopIteration:
                    break
                finally:
                    used += self._timer() - began
                await asyncio.sleep(0)
        except Exception:
            log.exception("a change is missing from network policies")
        self._used[lane] = self._used.get(lane, 0.0) + used
        self._count += 1
        if not self._count % JOBS_PER_YIELD:
            await asyncio.sleep(0)


def _set(event: asyncio.Event) -> Iterator[None]:
    event.set()
    yield from ()
