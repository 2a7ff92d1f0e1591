"""Deferred pods: they wait until plugins have computed more, while other pods are scheduled."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable

from control.scheduler.decisions import Deferred, Failed, Placed
from control.scheduler.podinfo import PodInfo
from control.scheduler.queue import SchedulingQueue
from control.scheduler.queued_pod import QueuedPod

ASIDE = 16
"""Pods of a namespace for which plugins continue working; more wait with nothing worked out."""
Decision = Placed | Failed | Deferred


class DeferredPods:
    """Decides about deferred pods. `slots` are those for bindings: who gets a decision holds one."""

    def __init__(
        self,
        decide: Callable[[QueuedPod], Awaitable[Decision]],
        failed: Callable[[QueuedPod, Exception], Failed],
        waits: Callable[[PodInfo], bool],
        queue: SchedulingQueue,
        slots: asyncio.Semaphore,
    ) -> None:
        """`failed` requeues a pod after an error; `waits` returns whether a pod is still to be scheduled."""
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
