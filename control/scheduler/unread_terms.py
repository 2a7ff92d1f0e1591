"""Pods on nodes whose large affinity is still being parsed in a thread, and does not count yet.

A pod that the scheduler places has been read by then. One that a client binds itself, or that was there when the scheduler
started, comes from the informer: to read 1.5 MiB of affinity terms takes a quarter of a second. Until then the pod counts for
everything but its terms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from control.event_loop import offload
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo


class UnreadTerms:
    """Pods whose terms are to be read; `count` counts those of a pod that is still on its node by then."""

    def __init__(self, count: Callable[[PodInfo, NodeInfo], None]) -> None:
        self._count = count
        self._waiting: dict[PodInfo, NodeInfo] = {}
        self._changed, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()

    def add(self, pod: PodInfo, node: NodeInfo) -> None:
        """Read a pod's terms when its turn comes."""
        self._waiting[pod] = node
        self._idle.clear()
        self._changed.set()

    def remove(self, pod: PodInfo) -> bool:
        """Remove a pod that leaves its node; return whether its terms have not been counted."""
        return self._waiting.pop(pod, None) is not None

    async def run(self) -> None:
        """Read terms until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._waiting:
                pod = next(iter(self._waiting))
                await offload.complete(pod.namespace, pod.read_terms)
                node = self._waiting.pop(pod, None)
                if node is not None:
                    self._count(pod, node)
            self._idle.set()

    async def settled(self) -> None:
        """Wait until all terms are counted; `run` has to be running."""
        await self._idle.wait()
