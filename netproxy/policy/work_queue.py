"""Queue of jobs that run in slices, so that DNS answers and the Service proxy run between them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar, cast

log = logging.getLogger(__name__)
JOBS_PER_TURN = 10
"""Jobs between two suspensions. A long job suspends itself."""


class WorkQueue:
    """A queue of jobs, done one after the other. A job is an iterator; others run whenever it yields."""

    def __init__(self) -> None:
        self._jobs: asyncio.Queue[Callable[[], Iterator[None]]] = asyncio.Queue()
        self.busy = False
        """True if any job is waiting or running."""

    def add(self, job: Callable[[], Iterator[None]]) -> None:
        self.busy = True
        self._jobs.put_nowait(job)

    async def join(self) -> None:
        """Wait until all jobs added so far are done."""
        await self._jobs.join()

    async def run(self) -> None:
        """Run jobs until cancelled. A job that raises is logged and left."""
        count = 0
        while True:
            job = await self._jobs.get()
            try:
                for _ in job():
                    await asyncio.sleep(0)
            except Exception:
                log.exception("a change is left out of network policies")
            self._jobs.task_done()
            self.busy = not self._jobs.empty()
            count += 1
            if not count % JOBS_PER_TURN:
                await asyncio.sleep(0)


R = TypeVar("R")


def run_to_end(job: Generator[None, None, R]) -> R:
    """Run a job to its end without suspending, and return its result."""
    while True:
        try:
            next(job)
        except StopIteration as stop:
            return cast(R, stop.value)
