"""The scheduling queue: active pods by priority, pods in back-off, and pods that wait for the cluster to change.

A pod that no node fits waits in `unschedulable` until an event comes that one of the plugins that rejected it cares for;
then it is retried, after its back-off (1 s doubling to 10 s), or at once while the scheduler has nothing else to do.
What waits for five minutes is tried anyway. Upstream: pkg/scheduler/backend/queue.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator

from control.event_loop.weight import LARGE
from control.scheduler import metrics
from control.scheduler.configuration import DEFAULT_NAME
from control.scheduler.podinfo import PodInfo
from control.scheduler.prepared_pods import PreparedPods
from control.scheduler.queued_pod import QueuedPod
from control.scheduler.sliced_work import SlicedWork
from kube import cancellation
from kube.clock import Clock

log = logging.getLogger(__name__)
FIRST_BACKOFF, LAST_BACKOFF = 1.0, 10.0
STALE_SECONDS = 300.0
SWEEP_SECONDS = 30.0
MOST_EVENTS = 64
"""Events, each with its hint, that are processed in slices at a time."""

Hint = Callable[[str, PodInfo], bool]
_Entry = tuple[int, float, int, QueuedPod]


def _helps(hint: Hint, plugin: str, pod: QueuedPod) -> bool:
    """Return whether an event may have helped a pod; True if the hint fails, as upstream."""
    try:
        return hint(plugin, pod.info)
    except Exception:
        log.exception("the queueing hint of %s failed for %s", plugin, pod.key)
        return True


class SchedulingQueue:
    """Pods that are not placed yet, each in exactly one of the three places."""

    def __init__(self, clock: Clock, first: float = FIRST_BACKOFF, last: float = LAST_BACKOFF) -> None:
        self._clock, self._first, self._last = clock, first, last
        self._active: list[_Entry] = []
        self._backoff: list[tuple[float, int, QueuedPod]] = []
        self._errors: list[tuple[float, int, QueuedPod]] = []
        """Back-off of pods whose try failed for another reason than lack of a node, and of large ones."""
        self._unschedulable: dict[str, QueuedPod] = {}
        self._pods: dict[str, QueuedPod] = {}
        self._in_flight: dict[str, set[str]] = {}
        """UIDs of pods being scheduled, with the events that came meanwhile."""
        self._newer: dict[str, PodInfo] = {}
        """New states of pods in flight, by UID."""
        self.prepared = PreparedPods()
        self.handlers_work = SlicedWork()
        self._events, self._more_events = 0, frozenset[str]()
        """Events that are processed in slices, and the plugins of those beyond the limit, which are processed as one."""
        self._numbers = itertools.count()
        self._ready = asyncio.Event()
        self._timer_changed = asyncio.Event()
        self._swept = asyncio.Event()
        """Set while pods may be unschedulable."""

    def __len__(self) -> int:
        return len(self._pods)

    def lengths(self) -> tuple[int, int, int]:
        """Return the number of active, backing-off and unschedulable pods."""
        waiting = len(self._unschedulable)
        backing_off = sum(1 for _, _, pod in [*self._backoff, *self._errors] if self._pods.get(pod.key) is pod)
        return len(self._pods) - waiting - backing_off, backing_off, waiting

    def rejections(self) -> Iterator[tuple[str, str]]:
        """Yield plugin and profile of each rejection that keeps a pod unschedulable."""
        for pod in self._unschedulable.values():
            profile = pod.info.pod.spec.scheduler_name or DEFAULT_NAME
            for plugin in pod.rejected_by:
                yield plugin, profile

    # -- what informers say -----------------------------------------------------------------------------------------
    def add(self, info: PodInfo) -> None:
        """Add a new pod, or store the new state of a known one; that of one being scheduled is kept for later."""
        if info.uid in self._in_flight:
            self._newer[info.uid] = info
            return
        known = self._pods.get(info.key)
        if known is not None and known.info.uid == info.uid:
            if not known.info.follow(info.pod):
                known.info = info
            return
        queued = QueuedPod(info, self._clock.monotonic())
        self._pods[info.key] = queued
        self._unschedulable.pop(info.key, None)
        self._activate(queued, metrics.POD_ADDED)

    def update(self, info: PodInfo) -> None:
        """Process a pod whose own spec or labels changed: it is worth another try."""
        known = self._pods.get(info.key)
        if known is None or known.info.uid != info.uid:
            self.add(info)
            return
        known.info = info
        if info.key in self._unschedulable:
            self._requeue(known, metrics.POD_UPDATED)

    def remove(self, key: str) -> None:
        """Drop a pod that was deleted or bound."""
        self.prepared.remove(key)
        self._pods.pop(key, None)
        self._unschedulable.pop(key, None)

    def event(self, plugins: frozenset[str], hint: Hint | None = None, cause: str = metrics.ACTIVATED) -> None:
        """The cluster changed in a way that these plugins care for: try what they rejected. `cause` is a label of metrics.

        A queueing hint says of a plugin and a pod whether this change can have helped; where it cannot, the pod stays. If many
        pods wait, they are processed in slices.
        """
        for events in self._in_flight.values():
            events.update(plugins)
        if self._events >= MOST_EVENTS:
            self._more_events |= plugins
        elif self._unschedulable:
            self._events += 1
            self.handlers_work.add(self._wake(plugins, hint, list(self._unschedulable.values()), cause))

    def _wake(
        self, plugins: frozenset[str], hint: Hint | None, waiting: Iterable[QueuedPod], cause: str
    ) -> Iterator[None]:
        """Move pods that an event may have helped, one at each step. Those that come to wait meanwhile know of the event."""
        for pod in waiting:
            if self._unschedulable.get(pod.key) is pod:
                concerned = pod.rejected_by & plugins
                if not pod.rejected_by or (
                    concerned and (hint is None or any(_helps(hint, p, pod) for p in concerned))
                ):
                    self._requeue(pod, cause)
            yield
        self._events -= 1
        if self._more_events:
            more, self._more_events = self._more_events, frozenset()
            self.event(more, cause=cause)

    # -- what the scheduler does ------------------------------------------------------------------------------------
    async def get(self) -> QueuedPod:
        """Wait for the next pod: the highest priority, then the longest waiting. Pair it with `done` or `failed`."""
        while True:
            found = self._pop()
            if found is not None:
                self._in_flight[found.info.uid] = set()
                del self._pods[found.key]
                self.prepared.remove(found.key)
                found.info.forgotten = False
                found.attempts += 1
                found.last_try = self._clock.monotonic()
                return found
            self._ready.clear()
            await self._ready.wait()

    def empty(self) -> bool:
        """True if `get` would have to wait."""
        return not self._active and not self._backoff and not self._errors

    def done(self, pod: QueuedPod) -> None:
        """The pod was placed (or is gone)."""
        self._in_flight.pop(pod.info.uid, None)
        self._newer.pop(pod.info.uid, None)

    def refresh(self, pod: QueuedPod) -> bool:
        """Store the new state of a pod in flight; return whether it is to be decided about again."""
        newer = self._newer.pop(pod.info.uid, None)
        if newer is None or pod.info.follow(newer.pod):
            return False
        pod.info = newer
        return True

    def failed(
        self, pod: QueuedPod, rejected_by: frozenset[str], *, error: bool = False, nominated: bool = False
    ) -> None:
        """No node fits, or something went wrong: keep the pod for later; what a nominated one needs is kept, too."""
        events, changed = self._in_flight.pop(pod.info.uid, set()), self.refresh(pod)
        if pod.key in self._pods:
            return  # a new pod of that name came meanwhile
        pod.rejected_by, pod.error = rejected_by, error
        self._pods[pod.key] = pod
        if not nominated:
            self.prepared.add(pod.info)
        if error or changed or (rejected_by & events):
            self._requeue(pod, metrics.FAILURE)
        else:
            self._unschedulable[pod.key] = pod
            self._swept.set()
            metrics.INCOMING.add("unschedulable", metrics.FAILURE)

    def retry(self, pod: QueuedPod) -> None:
        """Retry a pod after its back-off without an event: what was to make room for it has failed."""
        if self._unschedulable.get(pod.key) is pod:
            pod.error = True
            self._requeue(pod, metrics.ACTIVATED)

    async def run(self) -> None:
        """Move pods whose back-off is over, and those that have waited for too long, until cancelled."""
        async with asyncio.TaskGroup() as group:
            cancellation.start(group, self.handlers_work.run, "scheduling queue events")
            cancellation.start(group, self._run_backoff, "scheduling queue back-off")
            cancellation.start(group, self._run_sweep, "scheduling queue sweep")

    # -- inside -----------------------------------------------------------------------------------------------------
    def _activate(self, pod: QueuedPod, cause: str) -> None:
        metrics.INCOMING.add("active", cause)
        # One that was tried comes after those that came before that: upstream sets its timestamp again, too.
        since = max(pod.added, pod.last_try)
        heapq.heappush(self._active, (-pod.info.priority, since, next(self._numbers), pod))
        self._ready.set()

    def _requeue(self, pod: QueuedPod, cause: str) -> None:
        self._unschedulable.pop(pod.key, None)
        retry_at = pod.last_try + min(self._first * 2 ** (min(pod.attempts, 10) - 1), self._last)
        if retry_at <= self._clock.monotonic():
            self._activate(pod, cause)
            return
        metrics.INCOMING.add("backoff", cause)
        waits = pod.error or pod.info.size >= LARGE
        heapq.heappush(self._errors if waits else self._backoff, (retry_at, next(self._numbers), pod))
        self._timer_changed.set()
        if not waits:
            self._ready.set()

    def _pop(self) -> QueuedPod | None:
        while self._active:
            pod = heapq.heappop(self._active)[3]
            if self._pods.get(pod.key) is pod and pod.key not in self._unschedulable:
                return pod
        # Nothing better to do: a pod whose back-off was only to spare the scheduler need not wait it out.
        while self._backoff:
            pod = heapq.heappop(self._backoff)[2]
            if self._pods.get(pod.key) is pod and pod.key not in self._unschedulable:
                metrics.INCOMING.add("active", metrics.BACKOFF_POPPED)
                return pod
        return None

    async def _run_backoff(self) -> None:
        while True:
            self._timer_changed.clear()
            now = self._clock.monotonic()
            for waiting in (self._backoff, self._errors):
                while waiting and waiting[0][0] <= now:
                    pod = heapq.heappop(waiting)[2]
                    if self._pods.get(pod.key) is pod and pod.key not in self._unschedulable:
                        self._activate(pod, metrics.BACKOFF_COMPLETE)
            dues = [waiting[0][0] for waiting in (self._backoff, self._errors) if waiting]
            if not dues:
                await self._timer_changed.wait()
                continue
            waiter = asyncio.ensure_future(self._timer_changed.wait())
            timer = asyncio.ensure_future(self._clock.sleep(min(dues) - now))
            try:
                await asyncio.wait((waiter, timer), return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiter.cancel()
                timer.cancel()

    async def _run_sweep(self) -> None:
        while True:
            await self._swept.wait()
            await self._clock.sleep(SWEEP_SECONDS)
            if not self._unschedulable:
                self._swept.clear()
            oldest = self._clock.monotonic() - STALE_SECONDS
            for pod in [pod for pod in self._unschedulable.values() if pod.last_try <= oldest]:
                self._requeue(pod, metrics.TIMEOUT)
