"""Limits how many heavy runtime calls are under way; calls that finish a pod's start come before those that begin one.

containerd and runc do the same work a second with 4 concurrent calls as with 30, but with 30 every pod waits for all the
others. The priority of later steps makes the pods of a burst ready one after another instead of all at the end. It is not
strict: pods with many containers to start would keep others from being started and stopped. A priority that waits while others
get `STARVATION_LIMIT` slots is next, and within a priority slots go round robin over namespaces.

A call that takes many times as long as it should (a network plugin hangs) does not load the machine: it loses its slot to the
next one, so that such calls of some pods delay other pods only briefly. There is one call a pod at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from agent.metrics.exposition import Text

SLOT_SECONDS = 2.0
"""Seconds after which a call that has not returned gives up its slot; a healthy call takes 0.04 to 0.5 s."""


STARVATION_LIMIT = 3
"""Slots that other priorities get before a waiting priority is served."""


class _PriorityQueue:
    """Waiting calls of one priority, by namespace in the order in which namespaces are next."""

    def __init__(self) -> None:
        self.namespaces: dict[str, dict[asyncio.Future[None], None]] = {}
        self.waited = 0
        """Slots that other priorities got since this one had any."""

    def add(self, namespace: str, future: asyncio.Future[None]) -> None:
        self.namespaces.setdefault(namespace, {})[future] = None

    def remove(self, namespace: str, future: asyncio.Future[None]) -> None:
        waiting = self.namespaces.get(namespace, {})
        waiting.pop(future, None)
        if not waiting:
            self.namespaces.pop(namespace, None)
        if not self.namespaces:
            self.waited = 0

    def next(self) -> asyncio.Future[None]:
        """Remove the next call and return its future; its namespace is behind the others from now on."""
        namespace = next(iter(self.namespaces))
        waiting = self.namespaces.pop(namespace)
        future = next(iter(waiting))
        del waiting[future]
        if waiting:
            self.namespaces[namespace] = waiting
        self.waited = 0
        return future


class Limiter:
    """At most `limit` slots; the lowest priority number that is waited for is next, if no other waits for too long."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._queues: dict[int, _PriorityQueue] = {}
        """By priority."""
        self.slots_lent = 0
        """Calls under way that lost their slot."""

    @property
    def free(self) -> int:
        """The number of free slots."""
        return self._free

    def write(self, text: Text) -> None:
        """Add the families to a text."""
        waiting = sum(len(futures) for queue in self._queues.values() for futures in queue.namespaces.values())
        for name, help, value in (
            ("wherry_runtime_calls_waiting", "Number of heavy runtime calls that wait for a place", waiting),
            (
                "wherry_runtime_calls_held_long",
                f"Number of heavy runtime calls under way for more than {SLOT_SECONDS:g} s: one that stays hangs",
                self.slots_lent,
            ),
        ):
            text.family(name, "gauge", help, [({}, float(value), 0.0)])

    @contextlib.asynccontextmanager
    async def slot(self, priority: int, namespace: str) -> AsyncIterator[None]:
        """Hold a slot, for `SLOT_SECONDS` at most."""
        await self._acquire(priority, namespace)
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

    async def _acquire(self, priority: int, namespace: str) -> None:
        if self._free > 0:
            self._free -= 1
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(priority, _PriorityQueue())
        queue.add(namespace, future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._release()
            else:
                queue.remove(namespace, future)
            raise

    def _release(self) -> None:
        while queues := [
            self._queues[priority] for priority in sorted(self._queues) if self._queues[priority].namespaces
        ]:
            # The first of those that wait for longest, else the first.
            queue = max(queues, key=lambda queue: queue.waited if queue.waited >= STARVATION_LIMIT else 0)
            future = queue.next()
            if not future.done():
                for other in queues:
                    other.waited += other is not queue
                future.set_result(None)
                return
        self._free += 1
