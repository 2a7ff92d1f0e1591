"""The agent's own metrics, under the names, labels and buckets of upstream's kubelet (pkg/kubelet/metrics).

One `KubeletMetrics` is created at the start and passed to the parts, which write to it; /metrics shows it. Metrics of
upstream's that have no equivalent in this agent (a generic PLEG's discarded events, Windows) are left out rather than shown as
0.
"""

from __future__ import annotations

from agent.limiter import Limiter
from agent.threads import Threads
from agent.usage.counters import Counter, Histogram
from agent.usage.exposition import Text
from agent.usage.loop_metrics import LoopMetrics

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


class KubeletMetrics:
    """All families; each attribute is one."""

    def __init__(self, threads: Threads | None = None, runtime_calls: Limiter | None = None) -> None:
        counter, histogram = Counter, Histogram
        self.loops = LoopMetrics()
        self.threads = threads or Threads()
        self.runtime_calls = runtime_calls or Limiter(1)
        # -- requests to the kubelet port
        self.requests = counter(
            "kubelet_http_requests_total", "Number of the http requests received since the server started", _REQUEST
        )
        self.request_seconds = histogram(
            "kubelet_http_requests_duration_seconds", "Duration in seconds to serve http requests", _REQUEST
        )
        self.inflight = counter(
            "kubelet_http_inflight_requests", "Number of the inflight http requests", _REQUEST, kind="gauge"
        )
        self.websockets = counter(
            "kubelet_websocket_streaming_requests_total",
            "Number of streaming requests over a WebSocket, by operation.",
            ("operation",),
        )
        # -- who had to go
        self.evictions = counter(
            "kubelet_evictions", "Cumulative number of pod evictions by eviction signal", ("eviction_signal",)
        )
        self.eviction_age = histogram(
            "kubelet_eviction_stats_age_seconds",
            "Time between when stats are collected, and when pod is evicted based on those stats by eviction signal",
            ("eviction_signal",),
        )
        self.preemptions = counter(
            "kubelet_preemptions", "Cumulative number of pod preemptions by preemption resource", ("preemption_signal",)
        )
        # -- pods
        self.worker_seconds = histogram(
            "kubelet_pod_worker_duration_seconds",
            "Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
            ("operation_type",),
        )
        self.worker_start = histogram(
            "kubelet_pod_worker_start_duration_seconds",
            "Duration in seconds from kubelet seeing a pod to starting a worker.",
        )
        self.pod_start = histogram(
            "kubelet_pod_start_duration_seconds",
            "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
            buckets=_START,
        )
        self.pod_start_sli = histogram(
            "kubelet_pod_start_sli_duration_seconds",
            "Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from "
            "pod creation timestamp to when all its containers are reported as started and observed via watch",
            buckets=_START,
        )
        self.pod_start_total = histogram(
            "kubelet_pod_start_total_duration_seconds",
            "Duration in seconds to start a pod since creation, including time to pull images and run init containers, "
            "measured from pod creation timestamp to when all its containers are reported as started and observed via "
            "watch",
            buckets=_START,
        )
        self.status_sync = histogram(
            "kubelet_pod_status_sync_duration_seconds",
            "Duration in seconds to sync a pod status update. Measures time from detection of a change to pod status "
            "until the API is successfully updated for that pod, even if multiple changes to pod status occur.",
            buckets=_SYNC,
        )
        self.containers_per_pod = histogram(
            "kubelet_containers_per_pod_count", "The number of containers per pod.", buckets=(1, 2, 4, 8, 16)
        )
        self.orphans = counter(
            "kubelet_orphaned_runtime_pods_total",
            "Number of pods that have been detected in the container runtime without being already known to the pod "
            "worker.",
        )
        self.orphan_volumes = counter(
            "kubelet_orphan_pod_cleaned_volumes",
            "The total number of orphaned Pods whose volumes were cleaned in the last periodic sweep.",
            kind="gauge",
        )
        self.orphan_volume_errors = counter(
            "kubelet_orphan_pod_cleaned_volumes_errors",
            "The number of orphaned Pods whose volumes failed to be cleaned in the last periodic sweep.",
            kind="gauge",
        )
        # -- what runs
        self.sandbox_seconds = histogram(
            "kubelet_run_podsandbox_duration_seconds",
            "Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.",
            ("runtime_handler",),
        )
        self.sandbox_errors = counter(
            "kubelet_run_podsandbox_errors_total",
            "Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.",
            ("runtime_handler",),
        )
        self.started_pods = counter("kubelet_started_pods_total", "Cumulative number of pods started")
        self.started_pod_errors = counter(
            "kubelet_started_pods_errors_total", "Cumulative number of errors when starting pods"
        )
        self.started_containers = counter(
            "kubelet_started_containers_total", "Cumulative number of containers started", ("container_type",)
        )
        self.started_container_errors = counter(
            "kubelet_started_containers_errors_total",
            "Cumulative number of errors when starting containers",
            ("container_type", "code"),
        )
        self.terminated_containers = counter(
            "kubelet_terminated_containers_total",
            "Cumulative number of container terminations.",
            ("container_type", "exit_code", "reason"),
        )
        self.relist_seconds = histogram(
            "kubelet_pleg_relist_duration_seconds", "Duration in seconds for relisting pods in PLEG."
        )
        self.relist_interval = histogram(
            "kubelet_pleg_relist_interval_seconds", "Interval in seconds between relisting in PLEG."
        )
        self.relist_seen = counter(
            "kubelet_pleg_last_seen_seconds", "Timestamp in seconds when PLEG was last seen active.", kind="gauge"
        )
        self.removed_orphans = counter(
            "wherry_runtime_orphans_removed_total",
            "Number of things removed that a containerd that was killed has left: shims, bundles, network namespaces, "
            "addresses, leases.",
            ("kind",),
        )
        # -- images
        self.pull_seconds = histogram(
            "kubelet_image_pull_duration_seconds",
            "Duration in seconds to pull an image.",
            ("image_size_in_bytes",),
            buckets=_PULL,
        )
        self.images_collected = counter(
            "kubelet_image_garbage_collected_total",
            "Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
            ("reason",),
        )
        # -- the node
        self.node_startup = counter(
            "kubelet_node_startup_duration_seconds", "Duration in seconds of node startup in total.", kind="gauge"
        )
        self.before_agent = counter(
            "kubelet_node_startup_pre_kubelet_duration_seconds",
            "Duration in seconds of node startup before kubelet starts.",
            kind="gauge",
        )
        self.before_registration = counter(
            "kubelet_node_startup_pre_registration_duration_seconds",
            "Duration in seconds of node startup before registration.",
            kind="gauge",
        )
        self.registration = counter(
            "kubelet_node_startup_registration_duration_seconds",
            "Duration in seconds of node startup during registration.",
            kind="gauge",
        )
        self.after_registration = counter(
            "kubelet_node_startup_post_registration_duration_seconds",
            "Duration in seconds of node startup after registration.",
            kind="gauge",
        )

    def __str__(self) -> str:
        text = Text()
        for family in vars(self).values():
            family.write(text)
        return str(text)


def size_class(size: int) -> str:
    """Return the label that upstream gives an image of so many bytes."""
    return next((name for bound, name in _SIZES if size < bound), "GT100GB")
