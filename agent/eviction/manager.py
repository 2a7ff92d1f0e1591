"""The eviction loop: reads the signals, removes unused images, and evicts one pod a round where that does not suffice.

A round is every 10 s, or as soon as an evicted pod's resources are released: until then the signals still include them, and a
second pod would be evicted for the same shortage. So while an evicted pod would be the next one, no other is: it is evicted
again, as upstream (filterOutInactivePods keeps it), so that a pod that cannot be stopped costs no others.

For a shortage of disk, unused images are removed first; for others, and where that frees too little, a pod is evicted: at once
for a hard threshold, with at most `evictionMaxPodGracePeriod` for a soft one. Pods over a limit of their own are evicted before
the signals are considered. The pods' usage is read only when a pod is to be evicted or has such a limit. Pods can make the
removal of images and leftovers fail, so that is no reason to evict none.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from agent.eviction import local_storage
from agent.eviction.image_filesystem import ImageFilesystem
from agent.eviction.ranking import chosen, critical, eviction, rank, usage_of
from agent.eviction.signals import CONDITIONS, RESOURCES, Reading
from agent.eviction.thresholds import Threshold, ThresholdTracker
from agent.metrics.kubelet_metrics import KubeletMetrics
from agent.pods.manager import PodManager
from agent.usage.model import PodUse, Snapshot
from cri.errors import CRIError
from kube.clock import Clock

log = logging.getLogger(__name__)
PERIOD_SECONDS = 10.0
AT_ONCE_SECONDS = 1
"""The grace of a pod that goes for a hard threshold or a limit of its own (immediateEvictionGracePeriodSeconds)."""
CLEANUP_SECONDS = 30.0
"""Time that an evicted pod is waited for before the next round (podCleanupTimeout)."""


class Eviction:
    """Watches the node's signals; `changed` is called when the pressure conditions change.

    `free` removes unused images of so many bytes; `most_grace` are seconds for soft evictions, 0: none.
    `remove_leftovers` removes containers and logs of pods that have ended.
    """

    def __init__(
        self,
        pods: PodManager,
        watch: ThresholdTracker,
        read: Callable[[], Mapping[str, Reading]],
        snapshot: Callable[[float], Awaitable[Snapshot]],
        free: Callable[[int], Awaitable[int]],
        changed: Callable[[], None],
        images: ImageFilesystem,
        *,
        remove_leftovers: Callable[[], Awaitable[None]],
        clock: Clock,
        most_grace: int = 0,
        metrics: KubeletMetrics | None = None,
    ) -> None:
        self._metrics, self._looked = metrics or KubeletMetrics(), 0.0
        self._pods, self._watch, self._snapshot, self._free = pods, watch, snapshot, free
        self._changed, self._images, self._clock, self._most_grace = changed, images, clock, most_grace
        self._remove_leftovers = remove_leftovers
        self.read = read

    def pressures(self) -> Mapping[str, bool]:
        """Return the pressure conditions that were ever observed, and whether they hold."""
        return self._watch.conditions(self._clock.monotonic())

    async def run(self) -> None:
        """Check every 10 s until cancelled, and when evicted pods have released their resources."""
        evicted: Collection[str] = ()
        while True:
            if evicted:
                await self._cleaned_up(evicted)
            else:
                await self._clock.sleep(PERIOD_SECONDS)
            try:
                evicted = await self.check()
            except (CRIError, OSError) as error:
                evicted = ()
                log.warning("reading pods' usage: %s", error)

    async def _cleaned_up(self, uids: Collection[str]) -> None:
        """Wait until evicted pods' resources are released, at most `CLEANUP_SECONDS`."""
        free = asyncio.gather(*(self._pods.wait_released(uid) for uid in uids))
        late = asyncio.create_task(self._clock.sleep(CLEANUP_SECONDS), name="wait for evicted pods")
        waits: list[asyncio.Future[Any]] = [free, late]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not free.done():
                log.warning("evicted pods have not released their resources: %s", ", ".join(uids))
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def check(self) -> Collection[str]:
        """Check the signals once, and evict one pod where a threshold is met; return the evicted UIDs. Raise CRIError."""
        before = self.pressures()
        await self._images.locate()
        self._looked = self._clock.monotonic()
        readings = await asyncio.to_thread(self.read)
        met = self._watch.update(readings, self._clock.monotonic())
        if self.pressures() != before:
            self._changed()
        ended = await self._end_pods_over_their_limits()
        return await self._relieve(met[0], readings[met[0].signal]) if met and not ended else ended

    async def _relieve(self, one: Threshold, reading: Reading) -> Collection[str]:
        disk = CONDITIONS[one.signal] == "DiskPressure"
        if disk and await self._freed(one, reading):
            return ()
        used = await self._used()
        resource, parts = RESOURCES[one.signal], self._images.parts(one.signal)
        views = [(uid, view) for uid, view in self._pods.by_uid().items() if not view.released]
        usages = []
        for uid, view in views:
            usages.append(usage_of(view, used.get(uid), resource, parts))
            await asyncio.sleep(0)  # a pod may have thousands of volumes
        ranked = rank(usages)
        if not ranked:
            log.warning("%s is low and no pod can be evicted", one.signal)
            return ()
        first = ranked[0].view
        end = eviction(one, reading, ranked[0])
        metadata = first.pod.metadata
        again = " again, because it has not released its resources" if first.shortened else ""
        log.warning("evicting pod %s/%s%s: %s", metadata.namespace, metadata.name, again, end.message)
        grace = AT_ONCE_SECONDS if one.hard else self._most_grace
        own_grace = first.pod.spec.termination_grace_period_seconds
        uid = metadata.uid or ""
        grounds = chosen(one, ranked)
        self._pods.evict(uid, end, grace if own_grace is None else min(grace, own_grace), grounds=grounds)
        if not again:
            self._count(one.signal)
        return (uid,)

    async def _freed(self, one: Threshold, reading: Reading) -> bool:
        """Remove leftovers of ended pods, and unused images on that disk; return whether that is enough.

        If one of both fails, the other and the eviction of pods do not depend on it (reclaimNodeLevelResources).
        """
        try:
            await self._remove_leftovers()
        except (CRIError, OSError) as error:
            log.warning("%s is low: removing containers and logs of ended pods: %s", one.signal, error)
        freed = 0
        if self._images.has_images(one.signal):
            try:
                freed = await self._free(sys.maxsize)
            except (CRIError, OSError) as error:
                log.warning("%s is low: removing unused images: %s", one.signal, error)
        if freed:
            log.info("%s is low: removed unused images of %d bytes", one.signal, freed)
        after = (await asyncio.to_thread(self.read)).get(one.signal, reading)
        return not one.met(after)

    async def _end_pods_over_their_limits(self) -> Collection[str]:
        """Evict pods that exceed their own disk limits, except critical ones; return their UIDs."""
        watched = {}
        for uid, view in self._pods.by_uid().items():
            ends_already = view.released or view.shortened
            if not ends_already and not critical(view) and local_storage.limited(view.pod):
                watched[uid] = view
            await asyncio.sleep(0)  # a pod may have thousands of volumes
        if not watched:
            return ()
        ended = []
        used = await self._used()
        for uid, view in watched.items():
            use = used.get(uid)
            found = (
                local_storage.excess(view.pod, use, separate_images=self._images.separate) if use is not None else None
            )
            await asyncio.sleep(0)
            if found is not None:
                end, signal = found
                self._pods.evict(uid, end, AT_ONCE_SECONDS, grounds="it is over a limit of its own")
                self._count(signal)
                ended.append(uid)
        return ended

    def _count(self, signal: str) -> None:
        self._metrics.evictions.inc(signal)
        self._metrics.eviction_age.observe(self._clock.monotonic() - self._looked, signal)

    async def _used(self) -> dict[str, PodUse]:
        found = await self._snapshot(PERIOD_SECONDS)
        return {use.uid: use for use in (*found.pods, *found.ending)}
