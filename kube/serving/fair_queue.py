"""Fair queueing over owners: of large responses and of connections that get their TLS, a few in each iteration of the event
loop (`FairQueue`), and of handshakes that are computed in threads (`Slots`).

To encrypt and write a piece takes a fraction of a millisecond, and so does what a handshake needs on the event loop. If
hundreds of clients have just begun a watch or connected, one iteration of the loop would do that for all of them, and every
request would wait for several such iterations.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from kube.waiters import Waiters

PER_ITERATION = 4
"""Pieces written or handshakes begun in one iteration of the loop. With one, new clients would wait too long if iterations
are full of other work."""

PER_LONG_ITERATION = 64
"""The same in an iteration that follows one which took long."""


class FairQueue:
    """Queue of one listener: so many continue in an iteration of the event loop."""

    def __init__(self, most: int = PER_ITERATION, *, newest: bool = False, each: float = 0.0) -> None:
        """`most`: how many continue in an iteration of the loop; `newest`: see `Waiters`.

        With `each`, in seconds, there is one for each of these spans that the iteration before elapsed, if that is more, up to
        `PER_LONG_ITERATION`: what waits keeps its share of the processor if iterations are long.
        """
        self._left = self._most = most
        self._each = each
        self._began = 0.0
        self._counting = False
        self._waiters = Waiters(newest=newest)

    async def wait(self, owner: str) -> None:
        """Return at once, or in a later iteration if this one has had enough."""
        if not self._counting:
            loop = asyncio.get_running_loop()
            self._counting, self._began = True, loop.time()
            loop.call_soon(self._next_iteration)
        if self._left > 0 and not self._waiters:
            self._left -= 1
            return
        await self._waiters.add(owner)

    def _next_iteration(self) -> None:
        loop = asyncio.get_running_loop()
        elapsed, self._began = loop.time() - self._began, loop.time()
        self._left, self._counting = self._most, False
        if self._each:
            self._left = max(self._most, min(int(elapsed / self._each), PER_LONG_ITERATION))
        while self._left and self._waiters.wake():
            self._left -= 1
        if self._waiters:
            self._counting = True
            loop.call_soon(self._next_iteration)


class Slots:
    """Slots of work outside the event loop: so many at a time."""

    def __init__(self, most: int, *, newest: bool = False) -> None:
        """`newest`: see `Waiters`."""
        self._free = most
        self._waiters = Waiters(newest=newest)

    @contextlib.asynccontextmanager
    async def slot(self, owner: str) -> AsyncIterator[None]:
        """Wait for a slot and hold it until the block ends."""
        await self.acquire(owner)
        try:
            yield
        finally:
            self.release()

    async def acquire(self, owner: str, *, ahead: bool = False) -> None:
        """Wait for a slot, which the caller releases; `ahead`: before all of the owner that are not."""
        if self._free:
            self._free -= 1
            return
        waiter = self._waiters.add(owner, ahead=ahead)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # it was given a slot in the same iteration
                self.release()
            raise

    def release(self) -> None:
        """Release a slot."""
        if not self._waiters.wake():
            self._free += 1
