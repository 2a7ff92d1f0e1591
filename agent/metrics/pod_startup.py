"""Measures how long pods take to start, by upstream's three metrics (pkg/kubelet/util/pod_startup_latency_tracker.go).

Only pods that the agent saw before they started count. The third metric, the SLI, leaves out the time from the first pull's
beginning to the last one's end, and the run time of init containers.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.lifecycle import is_sidecar
from agent.metrics.kubelet_metrics import KubeletMetrics
from kube.api import core_v1
from kube.clock import parse_time


@dataclass(slots=True)
class _Start:
    seen: float
    pulling: float = 0.0
    pulled: float = 0.0


class PodStartupTracker:
    """Follows pods from their first sight until all their containers have started; times are epoch seconds."""

    def __init__(self, metrics: KubeletMetrics) -> None:
        self._metrics = metrics
        self._pending: dict[str, _Start] = {}

    def pod_added(self, pod: core_v1.Pod, now: float) -> None:
        """Record a new pod."""
        spec = pod.spec
        self._metrics.containers_per_pod.observe(len(spec.containers))
        if not pod.status.start_time:
            self._pending[pod.metadata.uid or ""] = _Start(now)

    def image_pulled(self, uid: str, began: float, ended: float) -> None:
        """Record that an image was pulled for a pod."""
        start = self._pending.get(uid)
        if start is not None:
            start.pulling = min(start.pulling or began, began)
            start.pulled = max(start.pulled, ended)

    def status_updated(self, pod: core_v1.Pod, status: core_v1.PodStatus, now: float) -> None:
        """Check a pod's status: the pod has started when all its containers have."""
        uid = pod.metadata.uid or ""
        start = self._pending.get(uid)
        if start is None:
            return
        if status.phase == "Failed":
            del self._pending[uid]
            return
        states = [shown.state for shown in status.container_statuses]
        if len(states) < len(pod.spec.containers) or not all(s and (s.running or s.terminated) for s in states):
            return
        del self._pending[uid]
        created = pod.metadata.creation_timestamp
        total = max(0.0, now - parse_time(created).timestamp()) if created else now - start.seen
        left_out = start.pulled - start.pulling + _initialising(pod, status)
        self._metrics.pod_start.observe(now - start.seen)
        self._metrics.pod_start_total.observe(total)
        self._metrics.pod_start_sli.observe(max(0.0, total - left_out))

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._pending.pop(uid, None)


def _initialising(pod: core_v1.Pod, status: core_v1.PodStatus) -> float:
    """Return the seconds that plain init containers ran, one after the other."""
    plain = {container.name for container in pod.spec.init_containers if not is_sidecar(container)}
    seconds = 0.0
    for shown in status.init_container_statuses:
        ended = shown.state.terminated if shown.name in plain and shown.state else None
        if ended is not None and ended.started_at and ended.finished_at:
            seconds += (parse_time(ended.finished_at) - parse_time(ended.started_at)).total_seconds()
    return seconds
