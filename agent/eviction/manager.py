"""The eviction loop: read the signals, free what nobody misses, and end one pod a round where that does not do.

A round is every 10 s, or as soon as what an evicted pod held is free: until then the signals still tell of it, and a
second pod would go for the same shortage. For a shortage of disk unused images go first; for others, and where that
frees too little, a pod: at once for a hard threshold, with at most `evictionMaxPodGracePeriod` for a soft one. Pods over a
limit of their own go before any of that is looked at. What each pod uses is asked only when somebody is to go or has such
a limit.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from agent.eviction import local_storage
from agent.eviction.ranking import eviction, rank, usage_of
from agent.eviction.signals import CONDITIONS, RESOURCES, Reading
from agent.eviction.thresholds import Threshold, Watch
from agent.pods.manager import PodManager
from agent.usage.model import PodUse, Snapshot
from agent.usage.observed import Observed
from cri.errors import CRIError
from kube.clock import Clock

log = logging.getLogger(__name__)
PERIOD_SECONDS = 10.0
AT_ONCE_SECONDS = 1
"""The grace of a pod that goes for a hard threshold or a limit of its own (immediateEvictionGracePeriodSeconds)."""
CLEANUP_SECONDS = 30.0
"""How long an evicted pod is waited for before the next round (podCleanupTimeout)."""


class Eviction:
    """Watches the node's signals. `pressures` are what the node object shows, `changed` is called when they do.

    `free` removes unused images, as many bytes as it is told; `most_grace` are seconds for soft evictions, 0: none.
    """

    def __init__(
        self,
        pods: PodManager,
        watch: Watch,
        read: Callable[[], Mapping[str, Reading]],
        snapshot: Callable[[float], Awaitable[Snapshot]],
        free: Callable[[int], Awaitable[int]],
        changed: Callable[[], None],
        *,
        clock: Clock,
        most_grace: int = 0,
        observed: Observed | None = None,
    ) -> None:
        self._observed, self._looked = observed or Observed(), 0.0
        self._pods, self._watch, self._snapshot, self._free = pods, watch, snapshot, free
        self._changed, self._clock, self._most_grace = changed, clock, most_grace
        self.read = read

    def pressures(self) -> Mapping[str, bool]:
        """Return the conditions that hold, or held."""
        return self._watch.conditions(self._clock.monotonic())

    async def run(self) -> None:
        """Look every 10 s until cancelled, and when those who had to go have gone."""
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
                log.warning("reading what pods use: %s", error)

    async def _cleaned_up(self, uids: Collection[str]) -> None:
        """Wait until what pods held is free, but not for ever."""
        free = asyncio.gather(*(self._pods.wait_released(uid) for uid in uids))
        late = asyncio.create_task(self._clock.sleep(CLEANUP_SECONDS), name="wait for evicted pods")
        waits: list[asyncio.Future[Any]] = [free, late]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not free.done():
                log.warning("evicted pods hold on to what they have: %s", ", ".join(uids))
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def check(self) -> Collection[str]:
        """Look at the signals once, and end one pod where one is bad; return the UIDs of those that go. Raise CRIError."""
        before = self.pressures()
        self._looked = self._clock.monotonic()
        readings = await asyncio.to_thread(self.read)
        due = self._watch.look(readings, self._clock.monotonic())
        if self.pressures() != before:
            self._changed()
        ended = await self._end_pods_over_their_limits()
        return await self._relieve(due[0], readings[due[0].signal]) if due and not ended else ended

    async def _relieve(self, one: Threshold, reading: Reading) -> Collection[str]:
        if CONDITIONS[one.signal] == "DiskPressure" and await self._freed(one, reading):
            return ()
        used = await self._used()
        resource = RESOURCES[one.signal]
        views = [(uid, view) for uid, view in self._pods.by_uid().items() if view.alive]
        ranked = rank([usage_of(view, used.get(uid), resource) for uid, view in views])
        if not ranked:
            log.warning("%s is low and there is no pod to evict", one.signal)
            return ()
        end = eviction(one, reading, ranked[0])
        metadata = ranked[0].view.pod.metadata
        log.warning("evicting pod %s/%s: %s", metadata.namespace, metadata.name, end.message)
        grace = AT_ONCE_SECONDS if one.hard else self._most_grace
        asked = ranked[0].view.pod.spec.termination_grace_period_seconds
        uid = metadata.uid or ""
        self._pods.evict(uid, end, grace if asked is None else min(grace, asked))
        self._count(one.signal)
        return (uid,)

    async def _freed(self, one: Threshold, reading: Reading) -> bool:
        """Remove all unused images, for inodes as for bytes; tell whether the threshold is no longer met."""
        freed = await self._free(sys.maxsize)
        if freed:
            log.info("%s is low: removed unused images of %d bytes", one.signal, freed)
        after = (await asyncio.to_thread(self.read)).get(one.signal, reading)
        return not one.met(after)

    async def _end_pods_over_their_limits(self) -> Collection[str]:
        """End pods that use more disk than their limits say; return their UIDs."""
        watched = {uid: view for uid, view in self._pods.by_uid().items() if local_storage.limited(view.pod)}
        if not any(view.alive and not view.terminating for view in watched.values()):
            return ()
        ended = []
        used = await self._used()
        for uid, view in watched.items():
            use = used.get(uid)
            found = local_storage.excess(view.pod, use) if use is not None and not view.terminating else None
            if found is not None:
                end, signal = found
                self._pods.evict(uid, end, AT_ONCE_SECONDS)
                self._count(signal)
                ended.append(uid)
        return ended

    def _count(self, signal: str) -> None:
        self._observed.evictions.inc(signal)
        self._observed.eviction_age.observe(self._clock.monotonic() - self._looked, signal)

    async def _used(self) -> dict[str, PodUse]:
        return {use.uid: use for use in (await self._snapshot(PERIOD_SECONDS)).pods}
