"""A queue of work for the event loop, done in slices: DNS answers and the Service proxy run between them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar, cast

log = logging.getLogger(__name__)
PIECES = 10
"""Jobs between two suspensions. A long job suspends itself."""


class Turns:
    """A queue of jobs, done one after the other. A job is an iterator; others run whenever it yields."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[Callable[[], Iterator[None]]] = asyncio.Queue()
        self.busy = False
        """Whether any job is waiting or running."""

    def add(self, work: Callable[[], Iterator[None]]) -> None:
        self.busy = True
        self._waiting.put_nowait(work)

    async def done(self) -> None:
        """Wait until all jobs added so far are done."""
        await self._waiting.join()

    async def run(self) -> None:
        """Run jobs until cancelled. A job that raises is logged and left."""
        count = 0
        while True:
            work = await self._waiting.get()
            try:
                for _ in work():
                    await asyncio.sleep(0)
            except Exception:
                log.exception("a change is left out of network policies")
            self._waiting.task_done()
            self.busy = not self._waiting.empty()
            count += 1
            if not count % PIECES:
                await asyncio.sleep(0)


R = TypeVar("R")


def at_once(work: Generator[None, None, R]) -> R:
    """Run a job to its end without suspending, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return cast(R, done.value)
