"""The scheduler's metrics, with upstream's names, labels and buckets (pkg/scheduler/metrics).

The gauges are set at a scrape (gauges.py). The time of an extension point is that of all its plugins, as in upstream; Filter
includes the scores of plugins that read one node only, because both are computed together and cached. A pod that takes the
next node of a ranking runs PreFilter only.
"""

from __future__ import annotations

from typing import Literal

from control.scheduler.queued_pod import QueuedPod
from kube.counters import Counter, Gauge, Histogram, doubled

Result = Literal["scheduled", "unschedulable", "error"]
SUCCESS, UNSCHEDULABLE, ERROR = "Success", "Unschedulable", "Error"
"""Status of an extension point."""


ATTEMPTS = Counter("scheduler_schedule_attempts", "Attempts to schedule pods, by result.", "result", "profile")
ATTEMPT_SECONDS = Histogram(
    "scheduler_scheduling_attempt_duration_seconds",
    "Duration of an attempt: selection of a node, and binding.",
    "result",
    "profile",
    buckets=doubled(0.001, 15),
)
ALGORITHM_SECONDS = Histogram(
    "scheduler_scheduling_algorithm_duration_seconds",
    "Duration of the selection of a node.",
    buckets=doubled(0.001, 15),
)
SLI_SECONDS = Histogram(
    "scheduler_pod_scheduling_sli_duration_seconds",
    "Time from a pod's entry into the queue to its binding, over all attempts.",
    "attempts",
    buckets=doubled(0.01, 20),
)
POD_ATTEMPTS = Histogram(
    "scheduler_pod_scheduling_attempts", "Attempts until a pod was scheduled.", buckets=doubled(1, 5)
)
EXTENSION_POINT_SECONDS = Histogram(
    "scheduler_framework_extension_point_duration_seconds",
    "Duration of all plugins of an extension point.",
    "extension_point",
    "status",
    "profile",
    buckets=doubled(0.0001, 12),
)
PREEMPTION_ATTEMPTS = Counter("scheduler_preemption_attempts", "Attempts to make room for a pod by preemption.")
PREEMPTION_VICTIMS = Histogram("scheduler_preemption_victims", "Victims of a preemption.", buckets=doubled(1, 7))
INCOMING = Counter("scheduler_queue_incoming_pods", "Pods added to a queue, by queue and event.", "queue", "event")
PENDING = Gauge("scheduler_pending_pods", "Pods that wait, by queue.", "queue")
UNSCHEDULABLE_PODS = Gauge(
    "scheduler_unschedulable_pods", "Unschedulable pods by a plugin that rejected them.", "plugin", "profile"
)
CACHE_SIZE = Gauge("scheduler_scheduler_cache_size", "Nodes, pods and assumed pods of the cache.", "type")

# -- events of the queue, by upstream's labels (pkg/scheduler/framework/events.go) ------------------------------------
POD_ADDED, POD_UPDATED = "UnschedulablePodAdd", "UnschedulablePodUpdate"
FAILURE, BACKOFF_COMPLETE, BACKOFF_POPPED = "ScheduleAttemptFailure", "BackoffComplete", "PopFromBackoffQ"
TIMEOUT, ACTIVATED = "UnschedulableTimeout", "ForceActivate"
ACTIONS = {"ADDED": "Add", "MODIFIED": "Update", "DELETED": "Delete"}
"""Actions by the type of a change."""


def attempted(result: Result, profile: str, queued: QueuedPod, now: float) -> None:
    """Count an attempt that has ended; `now` is of the queue's clock."""
    ATTEMPTS.add(result, profile)
    ATTEMPT_SECONDS.observe(result, profile, now - queued.last_try)
    if result == "scheduled":
        POD_ATTEMPTS.observe(queued.attempts)
        SLI_SECONDS.observe("15+" if queued.attempts > 14 else str(queued.attempts), now - queued.added)
