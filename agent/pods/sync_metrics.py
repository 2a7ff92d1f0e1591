"""Metrics of one pod's syncs: time to the worker's first sync, and duration of each by its kind."""

from __future__ import annotations

from collections.abc import Coroutine

from agent.metrics.kubelet_metrics import KubeletMetrics
from kube.clock import Clock


class SyncMetrics:
    """Observes kubelet_pod_worker_start_duration_seconds and kubelet_pod_worker_duration_seconds for one worker."""

    def __init__(self, metrics: KubeletMetrics, clock: Clock) -> None:
        self._metrics, self._clock = metrics, clock
        self._created = clock.monotonic()
        self._syncs = 0
        self._updated = False

    def spec_changed(self) -> None:
        """Count the next sync as an update."""
        self._updated = True

    @property
    def kind(self) -> str:
        """The kind of the next sync: create, update or sync."""
        return "create" if not self._syncs else "update" if self._updated else "sync"

    async def observe(self, sync: Coroutine[None, None, None]) -> None:
        """Run a sync and observe its duration, unless it fails."""
        began = self._clock.monotonic()
        if not self._syncs:
            self._metrics.worker_start.observe(began - self._created)
        kind = self.kind
        self._syncs, self._updated = self._syncs + 1, False
        await sync
        self._metrics.worker_seconds.observe(self._clock.monotonic() - began, kind)
