"""The agent's own metrics, under the names, labels and buckets of upstream's kubelet (pkg/kubelet/metrics).

One `KubeletMetrics` is created at the start and passed to the components, which write to it; /metrics shows it.
Upstream's metrics without an equivalent in this agent (a generic PLEG's discarded events, Windows) are omitted rather than
shown as 0.
"""

# ruff: noqa: RUF009  # _counter and _histogram return fields of a dataclass

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.metrics.counters import DEFAULT_BUCKETS, Counter, Histogram
from agent.metrics.exposition import Families, Text
from kube.loops import FAILURES, RUNNING, TASKS, count_tasks
from kube.step_shares import EVERY, LONG, STOPPED

_START = (0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600)
_PULL = (1, 5, 10, 20, 30, 60, 180, 300, 600, 900, 1200, 1800, 2700, 3600)
_SYNC = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 20, 30, 45, 60)
_REQUEST = ("method", "path", "server_type", "long_running")
_MIB, _GIB = 1 << 20, 1 << 30
_SIZES = (
    (10 * _MIB, "0-10MB"),
    (100 * _MIB, "10MB-100MB"),
    (500 * _MIB, "100MB-500MB"),
    (_GIB, "500MB-1GB"),
    (5 * _GIB, "1GB-5GB"),
    (10 * _GIB, "5GB-10GB"),
    (20 * _GIB, "10GB-20GB"),
    (30 * _GIB, "20GB-30GB"),
    (40 * _GIB, "30GB-40GB"),
    (60 * _GIB, "40GB-60GB"),
    (100 * _GIB, "60GB-100GB"),
)


def _counter(name: str, help: str, labels: Sequence[str] = (), kind: str = "counter") -> Any:
    return field(init=False, default_factory=lambda: Counter(name, help, labels, kind))


def _histogram(name: str, help: str, labels: Sequence[str] = (), buckets: Sequence[float] = DEFAULT_BUCKETS) -> Any:
    return field(init=False, default_factory=lambda: Histogram(name, help, labels, buckets))


@dataclass(eq=False, repr=False)
class KubeletMetrics:
    """All families, in the order in which /metrics shows them; each attribute is one."""

    components: Sequence[Families] = ()
    """Components that write their own, after those of the loops."""
    # -- requests to the kubelet port
    requests: Counter = _counter(
        "kubelet_http_requests_total", "Number of the http requests received since the server started", _REQUEST
    )
    request_seconds: Histogram = _histogram(
        "kubelet_http_requests_duration_seconds", "Duration in seconds to serve http requests", _REQUEST
    )
    inflight: Counter = _counter(
        "kubelet_http_inflight_requests", "Number of the inflight http requests", _REQUEST, kind="gauge"
    )
    websockets: Counter = _counter(
        "kubelet_websocket_streaming_requests_total",
        "Number of streaming requests over a WebSocket, by operation.",
        ("operation",),
    )
    # -- evictions and preemptions
    evictions: Counter = _counter(
        "kubelet_evictions", "Cumulative number of pod evictions by eviction signal", ("eviction_signal",)
    )
    eviction_age: Histogram = _histogram(
        "kubelet_eviction_stats_age_seconds",
        "Time between when stats are collected, and when pod is evicted based on those stats by eviction signal",
        ("eviction_signal",),
    )
    preemptions: Counter = _counter(
        "kubelet_preemptions", "Cumulative number of pod preemptions by preemption resource", ("preemption_signal",)
    )
    # -- pods
    worker_seconds: Histogram = _histogram(
        "kubelet_pod_worker_duration_seconds",
        "Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
        ("operation_type",),
    )
    worker_start: Histogram = _histogram(
        "kubelet_pod_worker_start_duration_seconds",
        "Duration in seconds from kubelet seeing a pod to starting a worker.",
    )
    pod_start: Histogram = _histogram(
        "kubelet_pod_start_duration_seconds",
        "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
        buckets=_START,
    )
    pod_start_sli: Histogram = _histogram(
        "kubelet_pod_start_sli_duration_seconds",
        "Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from "
        "pod creation timestamp to when all its containers are reported as started and observed via watch",
        buckets=_START,
    )
    pod_start_total: Histogram = _histogram(
        "kubelet_pod_start_total_duration_seconds",
        "Duration in seconds to start a pod since creation, including time to pull images and run init containers, "
        "measured from pod creation timestamp to when all its containers are reported as started and observed via "
        "watch",
        buckets=_START,
    )
    status_sync: Histogram = _histogram(
        "kubelet_pod_status_sync_duration_seconds",
        "Duration in seconds to sync a pod status update. Measures time from detection of a change to pod status "
        "until the API is successfully updated for that pod, even if multiple changes to pod status occur.",
        buckets=_SYNC,
    )
    containers_per_pod: Histogram = _histogram(
        "kubelet_containers_per_pod_count", "The number of containers per pod.", buckets=(1, 2, 4, 8, 16)
    )
    orphans: Counter = _counter(
        "kubelet_orphaned_runtime_pods_total",
        "Number of pods that have been detected in the container runtime without being already known to the pod "
        "worker.",
    )
    orphan_volumes: Counter = _counter(
        "kubelet_orphan_pod_cleaned_volumes",
        "The total number of orphaned Pods whose volumes were cleaned in the last periodic sweep.",
        kind="gauge",
    )
    orphan_volume_errors: Counter = _counter(
        "kubelet_orphan_pod_cleaned_volumes_errors",
        "The number of orphaned Pods whose volumes failed to be cleaned in the last periodic sweep.",
        kind="gauge",
    )
    # -- sandboxes, containers and their relist
    sandbox_seconds: Histogram = _histogram(
        "kubelet_run_podsandbox_duration_seconds",
        "Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.",
        ("runtime_handler",),
    )
    sandbox_errors: Counter = _counter(
        "kubelet_run_podsandbox_errors_total",
        "Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.",
        ("runtime_handler",),
    )
    started_pods: Counter = _counter("kubelet_started_pods_total", "Cumulative number of pods started")
    started_pod_errors: Counter = _counter(
        "kubelet_started_pods_errors_total", "Cumulative number of errors when starting pods"
    )
    started_containers: Counter = _counter(
        "kubelet_started_containers_total", "Cumulative number of containers started", ("container_type",)
    )
    started_container_errors: Counter = _counter(
        "kubelet_started_containers_errors_total",
        "Cumulative number of errors when starting containers",
        ("container_type", "code"),
    )
    terminated_containers: Counter = _counter(
        "kubelet_terminated_containers_total",
        "Cumulative number of container terminations.",
        ("container_type", "exit_code", "reason"),
    )
    relist_seconds: Histogram = _histogram(
        "kubelet_pleg_relist_duration_seconds", "Duration in seconds for relisting pods in PLEG."
    )
    relist_interval: Histogram = _histogram(
        "kubelet_pleg_relist_interval_seconds", "Interval in seconds between relisting in PLEG."
    )
    relist_seen: Counter = _counter(
        "kubelet_pleg_last_seen_seconds", "Timestamp in seconds when PLEG was last seen active.", kind="gauge"
    )
    removed_orphans: Counter = _counter(
        "wherry_runtime_orphans_removed_total",
        "Number of things removed that a containerd that was killed has left: shims, bundles, network namespaces, "
        "addresses, leases.",
        ("kind",),
    )
    # -- images
    pull_seconds: Histogram = _histogram(
        "kubelet_image_pull_duration_seconds",
        "Duration in seconds to pull an image.",
        ("image_size_in_bytes",),
        buckets=_PULL,
    )
    images_collected: Counter = _counter(
        "kubelet_image_garbage_collected_total",
        "Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
        ("reason",),
    )
    # -- the node
    node_startup: Counter = _counter(
        "kubelet_node_startup_duration_seconds", "Duration in seconds of node startup in total.", kind="gauge"
    )
    before_agent: Counter = _counter(
        "kubelet_node_startup_pre_kubelet_duration_seconds",
        "Duration in seconds of node startup before kubelet starts.",
        kind="gauge",
    )
    before_registration: Counter = _counter(
        "kubelet_node_startup_pre_registration_duration_seconds",
        "Duration in seconds of node startup before registration.",
        kind="gauge",
    )
    registration: Counter = _counter(
        "kubelet_node_startup_registration_duration_seconds",
        "Duration in seconds of node startup during registration.",
        kind="gauge",
    )
    after_registration: Counter = _counter(
        "kubelet_node_startup_post_registration_duration_seconds",
        "Duration in seconds of node startup after registration.",
        kind="gauge",
    )

    def __str__(self) -> str:
        text = Text()
        _write_loops(text)
        _write_steps(text)
        own = (family for name, family in vars(self).items() if name != "components")
        for families in (*self.components, *own):
            families.write(text)
        return str(text)


def _write_loops(text: Text) -> None:
    """Write which loops run, how often each failed and started again, and the number of tasks, as kube.loops counts them."""
    for name, kind, metric in ((RUNNING.name, "gauge", RUNNING), (f"{FAILURES.name}_total", "counter", FAILURES)):
        samples = [({"loop": loop}, float(value), 0.0) for (loop,), value in sorted(metric.values.items())]
        text.family(name, kind, metric.text, samples)
    count_tasks()
    text.family(TASKS.name, "gauge", TASKS.text, [({}, value, 0.0) for value in TASKS.values.values()])


def _write_steps(text: Text) -> None:
    """Write the CPU time of steps of tasks on the event loop, and how many were stopped, as kube.step_limit counts them."""
    for metric in (EVERY, LONG, STOPPED):
        samples = [({"work": work}, float(value), 0.0) for (work,), value in sorted(metric.values.items())]
        text.family(f"{metric.name}_total", "counter", metric.text, samples)


def size_class(size: int) -> str:
    """Return upstream's label for an image of this size in bytes."""
    return next((name for bound, name in _SIZES if size < bound), "GT100GB")
