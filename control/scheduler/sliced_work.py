"""Work that informers' handlers start and that continues in slices, because its amount depends on the waiting pods.

Each piece of work is an iterator that does a little at each step. The pieces are done in the order in which they came, the
first steps at once, so that nothing is left for later where little waits.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator

AT_ONCE = 256
"""Steps of a piece of work that are done when it comes, unless others wait."""
SLICE_SECONDS = 0.005
"""CPU time of a slice, but for its last step."""
now: Callable[[], float] = time.thread_time


class SlicedWork:
    """Pieces of work in their order."""

    def __init__(self) -> None:
        self._pieces: deque[Iterator[None]] = deque()
        self._came = asyncio.Event()

    def __len__(self) -> int:
        return len(self._pieces)

    def add(self, piece: Iterator[None]) -> None:
        """Do a slice of a piece of work at once if it is the only one, and the rest in `run`."""
        self._pieces.append(piece)
        if len(self._pieces) == 1:
            self._slice(AT_ONCE)
        if self._pieces:
            self._came.set()

    async def run(self) -> None:
        """Do what is left, in slices with the event loop between them, until cancelled."""
        while True:
            await self._came.wait()
            self._came.clear()
            while self._pieces:
                self._slice()
                await asyncio.sleep(0)

    def _slice(self, most: int | None = None) -> None:
        end = now() + SLICE_SECONDS
        piece = self._pieces[0]
        while most is None or most > 0:
            try:
                next(piece)
            except StopIteration:
                self._pieces.popleft()
                return
            most = most - 1 if most is not None else None
            if now() >= end:
                return
