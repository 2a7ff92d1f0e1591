"""Gauges of a scheduler, set at a scrape: pods that wait, plugins that rejected them, and sizes of the cache."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from control.scheduler.cluster import Cluster
from control.scheduler.event_handlers import EventHandlers
from control.scheduler.metrics import CACHE_SIZE, PENDING, UNSCHEDULABLE_PODS
from control.scheduler.queue import SchedulingQueue
from kube.api import core_v1
from kube.counters import before_scrape
from kube.informer import Informer


class Gauges:
    """Source of one scheduler's gauges, which are shown while it runs."""

    def __init__(
        self, queue: SchedulingQueue, cluster: Cluster, handlers: EventHandlers, pods: Informer[core_v1.Pod]
    ) -> None:
        self.queue, self.cluster, self.handlers, self.pods = queue, cluster, handlers, pods

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Count this scheduler's pods and nodes at scrapes."""
        _gauges.append(self)
        try:
            yield
        finally:
            _gauges.remove(self)

    def pending(self) -> dict[str, int]:
        """Return the number of pods in each queue."""
        active, backing_off, waiting = self.queue.lengths()
        return {
            "active": active,
            "backoff": backing_off,
            "unschedulable": waiting,
            "gated": self.handlers.held_back,
        }


_gauges: list[Gauges] = []


def all_pods() -> Iterator[core_v1.Pod]:
    """Yield the pods that the schedulers of this process know."""
    for each in list(_gauges):
        yield from each.pods.list()


def _update() -> None:
    pending, sizes, rejected = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    for each in _gauges:
        pending.update(each.pending())
        sizes.update(each.cluster.sizes())
        rejected.update(each.queue.rejections())
    PENDING.values = {(queue,): float(count) for queue, count in pending.items()}
    CACHE_SIZE.values = {(kind,): float(count) for kind, count in sizes.items()}
    UNSCHEDULABLE_PODS.values = {key: float(count) for key, count in rejected.items()}


before_scrape(_update)
