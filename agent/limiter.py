"""Limits how many heavy runtime calls are under way; calls that finish a pod's start come before those that begin one.

containerd and runc do the same work a second with 4 concurrent calls as with 30, but with 30 every pod waits for all the
others. The priority of later steps makes the pods of a burst ready one after another instead of all at the end.

A call that takes many times as long as it should (a network plugin hangs) does not load the machine: it loses its slot to the
next one, so that such calls of some pods delay other pods only briefly. There is one call a pod at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import AsyncIterator

from agent.metrics.exposition import Text

SLOT_SECONDS = 2.0
"""Seconds after which a call that has not returned gives up its slot; a healthy call takes 0.04 to 0.5 s."""


class Limiter:
    """At most `limit` slots; the lowest priority number, then the first to wait, is next."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self.slots_lent = 0
        """Calls under way that lost their slot."""

    @property
    def free(self) -> int:
        """The number of free slots."""
        return self._free

    def write(self, text: Text) -> None:
        """Add the families to a text."""
        for name, help, value in (
            ("wherry_runtime_calls_waiting", "Number of heavy runtime calls that wait for a place", len(self._waiting)),
            (
                "wherry_runtime_calls_held_long",
                f"Number of heavy runtime calls under way for more than {SLOT_SECONDS:g} s: one that stays hangs",
                self.slots_lent,
            ),
        ):
            text.family(name, "gauge", help, [({}, float(value), 0.0)])

    @contextlib.asynccontextmanager
    async def slot(self, priority: int) -> AsyncIterator[None]:
        """Hold a slot, for `SLOT_SECONDS` at most."""
        await self._acquire(priority)
        lent = False

        def lend() -> None:
            nonlocal lent
            lent = True
            self.slots_lent += 1
            self._release()

        timer = asyncio.get_running_loop().call_later(SLOT_SECONDS, lend)
        try:
            yield
        finally:
            if lent:
                self.slots_lent -= 1
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
