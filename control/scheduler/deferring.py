"""Pods about which nothing is decided before plugins have worked out more: they wait, and others go on being placed."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable

from control.scheduler.decisions import Deferred, Failed, Placed
from control.scheduler.podinfo import PodInfo, QueuedPod
from control.scheduler.queue import SchedulingQueue

ASIDE = 16
"""Pods of a namespace for which plugins go on working; more wait with nothing worked out."""
Decision = Placed | Failed | Deferred


class Deferring:
    """Decides about deferred pods. `slots` are those for bindings: who gets a decision holds one."""

    def __init__(
        self,
        decide: Callable[[QueuedPod], Awaitable[Decision]],
        failed: Callable[[QueuedPod, Exception], Failed],
        waits: Callable[[PodInfo], bool],
        queue: SchedulingQueue,
        slots: asyncio.Semaphore,
    ) -> None:
        """`failed` puts a pod back after an error; `waits` says whether a pod is still to be placed."""
        self._decide, self._failed, self._waits, self._queue, self._slots = decide, failed, waits, queue, slots
        self._places: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()

    async def decided(self, queued: QueuedPod, deferred: Deferred) -> Placed | Failed | None:
        """Return what is decided in the end, None about a pod that is gone by then."""
        places = self._places.setdefault(queued.info.namespace, asyncio.Semaphore(ASIDE))
        if places.locked():
            queued.info.cycle_state.clear()
            deferred = Deferred(_at_once)
        async with places:
            return await self._until_decided(queued, deferred)

    async def _until_decided(self, queued: QueuedPod, deferred: Deferred) -> Placed | Failed | None:
        while True:
            try:
                await deferred.go_on()
            except Exception as error:
                await self._slots.acquire()
                return self._failed(queued, error)
            await self._slots.acquire()
            if not self._waits(queued.info):
                self._queue.done(queued)
                self._slots.release()
                return None
            self._queue.refresh(queued)
            decision = await self._decide(queued)
            if not isinstance(decision, Deferred):
                return decision
            self._slots.release()
            deferred = decision


async def _at_once() -> None:
    """Nothing has been worked out yet."""
