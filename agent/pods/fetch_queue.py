"""Fetches the ConfigMaps and Secrets that have no watch; round robin over namespaces, and in each over its pods.

One is fetched every `INTERVAL_SECONDS`. With more than 1920 of them on a node, not all can be fetched once a minute: a pod that
names a thousand then waits for its own, and the others' are as current as before.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
from collections import OrderedDict

from agent.pods.referenced_objects import ERRORS, FetchedObject
from kube.clock import Clock

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 1 / 32
"""Time from one fetch to the next."""

_Heap = list[tuple[float, int, FetchedObject]]


class FetchQueue:
    """Fetches objects as they become due, one at a time, while there are any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._namespaces: OrderedDict[str, OrderedDict[str, _Heap]] = OrderedDict()
        self._count = itertools.count()
        self._task: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Nothing is fetched."""
        return self._task is None

    def add(self, namespace: str, pod: str, source: FetchedObject) -> None:
        """Fetch an object periodically, in turn with one of its pods, until it is closed."""
        heap = self._namespaces.setdefault(namespace, OrderedDict()).setdefault(pod, [])
        heapq.heappush(heap, (source.fetch_at, next(self._count), source))
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="fetch ConfigMaps and Secrets")

    async def close(self) -> None:
        """Fetch nothing more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while self._namespaces:
            fetch_at = min(heap[0][0] for pods in self._namespaces.values() for heap in pods.values())
            await self._clock.sleep(max(INTERVAL_SECONDS, fetch_at - self._clock.monotonic()))
            while (taken := self._take()) is not None:
                namespace, pod, source = taken
                if source.closed:
                    continue
                if source.fetch_at > self._clock.monotonic():  # a pod that starts had it fetched meanwhile
                    self.add(namespace, pod, source)
                    continue
                await self._fetch(source)
                self.add(namespace, pod, source)
                break
        self._task = None

    @staticmethod
    async def _fetch(source: FetchedObject) -> None:
        try:
            await source.fetch()
        except ERRORS:
            pass  # it is logged, and the pods keep what they have
        except Exception:
            log.exception("fetching a ConfigMap or Secret")

    def _take(self) -> tuple[str, str, FetchedObject] | None:
        """Pop the next object by round robin over namespaces and their pods; None if it is too early for all."""
        now = self._clock.monotonic()
        for namespace, pods in self._namespaces.items():
            for pod, heap in pods.items():
                if heap[0][0] <= now:
                    source = heapq.heappop(heap)[2]
                    pods.move_to_end(pod)
                    self._namespaces.move_to_end(namespace)
                    if not heap:
                        del pods[pod]
                    if not pods:
                        del self._namespaces[namespace]
                    return namespace, pod, source
        return None
