"""A bound on how many heavy runtime calls are under way, with those that finish a pod before those that begin one.

containerd and runc do the same work a second with 4 calls at once as with 30, but with 30 every pod waits for all the
others. Priority to later steps makes pods of a burst ready one after another instead of all at the end.

A call that takes many times as long as it should (a network plugin hangs) waits for something else than the machine: its place
is lent to the next one, so that such calls of some pods hold up other pods for moments. There is one call a pod at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import AsyncIterator

from agent.usage.exposition import Text

HELD_SECONDS = 2.0
"""Seconds after which a call that has not returned gives up its slot; a healthy call takes 0.04 to 0.5 s."""


class Limiter:
    """At most `limit` holders; among those who wait the lowest number, then the first come, is next."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self.held_long = 0
        """Calls under way whose place was lent."""

    @property
    def free(self) -> int:
        """The places that nobody holds."""
        return self._free

    def write(self, text: Text) -> None:
        """Add the families to a text."""
        for name, help, value in (
            ("wherry_runtime_calls_waiting", "Number of heavy runtime calls that wait for a place", len(self._waiting)),
            (
                "wherry_runtime_calls_held_long",
                f"Number of heavy runtime calls under way for more than {HELD_SECONDS:g} s: one that stays hangs",
                self.held_long,
            ),
        ):
            text.family(name, "gauge", help, [({}, float(value), 0.0)])

    @contextlib.asynccontextmanager
    async def slot(self, priority: int) -> AsyncIterator[None]:
        """Hold one of the places, or have lent it after a while."""
        await self._acquire(priority)
        lent = False

        def lend() -> None:
            nonlocal lent
            lent = True
            self.held_long += 1
            self._release()

        timer = asyncio.get_running_loop().call_later(HELD_SECONDS, lend)
        try:
            yield
        finally:
            if lent:
                self.held_long -= 1
            else:
                timer.cancel()
                self._release()

    async def _acquire(self, priority: int) -> None:
        if self._free > 0:
            self._free -= 1
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._order), future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
                return
        self._free += 1
