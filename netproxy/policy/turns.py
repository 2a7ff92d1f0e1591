"""Work that is done one piece after the other, in slices between which others run: DNS answers and the proxy share the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar, cast

log = logging.getLogger(__name__)
PIECES = 10
"""Pieces that are done in one go; a piece that is longer yields by itself."""


class Turns:
    """A queue of pieces of work; a piece is an iterator that is suspended where it yields."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[Callable[[], Iterator[None]]] = asyncio.Queue()
        self.busy = False
        """Whether any piece is not done."""

    def add(self, work: Callable[[], Iterator[None]]) -> None:
        self.busy = True
        self._waiting.put_nowait(work)

    async def done(self) -> None:
        """Wait until all that was added is done."""
        await self._waiting.join()

    async def run(self) -> None:
        """Work until cancelled."""
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
    """Do all slices of some work."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return cast(R, done.value)
