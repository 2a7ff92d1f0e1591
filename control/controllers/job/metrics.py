"""Metrics of Jobs, with upstream's names, labels and buckets (pkg/controller/job/metrics)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from control.controllers.job.plan import finished
from control.controllers.job.tally import FINALIZER
from control.controllers.pods import is_terminal
from kube.api import batch_v1, core_v1
from kube.clock import Clock
from kube.counters import Counter, Histogram, doubled
from kube.informer import Change

JOB_SECONDS = Histogram(
    "job_controller_job_sync_duration_seconds",
    "Duration of reconciling a Job.",
    "completion_mode",
    "result",
    "action",
    buckets=doubled(0.004, 15),
)
JOB_SYNCS = Counter("job_controller_job_syncs", "Jobs reconciled.", "completion_mode", "result", "action")
JOBS_FINISHED = Counter("job_controller_jobs_finished", "Jobs that ended.", "completion_mode", "result", "reason")
JOB_PODS_FINISHED = Counter(
    "job_controller_job_pods_finished", "Finished pods that were counted.", "completion_mode", "result"
)
POLICY_ACTIONS = Counter(
    "job_controller_pod_failures_handled_by_failure_policy",
    "Failed pods that a rule of the pod failure policy matched.",
    "action",
)
TRACKED_PODS = Counter(
    "job_controller_terminated_pods_tracking_finalizer",
    "Terminated pods that got or lost the finalizer by which Jobs count them.",
    "event",
)


@dataclass(slots=True)
class JobSync:
    """Reconciliation of one Job: `action` is what it did."""

    action: str = "reconciling"


@contextlib.contextmanager
def job_sync(job: batch_v1.Job, clock: Clock) -> Iterator[JobSync]:
    """Count the reconciliation of a Job."""
    began, sync, result = clock.monotonic(), JobSync(), "error"
    try:
        yield sync
        result = "success"
    finally:
        mode = _mode(job)
        JOB_SYNCS.add(mode, result, sync.action)
        JOB_SECONDS.observe(mode, result, sync.action, clock.monotonic() - began)


def job_written(before: batch_v1.Job, status: batch_v1.JobStatus) -> None:
    """Count the pods and the end of a Job that its new status shows."""
    mode = _mode(before)
    for result in ("succeeded", "failed"):
        more = (getattr(status, result) or 0) - (getattr(before.status, result) or 0)
        if more > 0:
            JOB_PODS_FINISHED.add(mode, result, amount=more)
    if finished(before):
        return
    for condition in status.conditions:
        if condition.type in ("Complete", "Failed") and condition.status == "True":
            result = "succeeded" if condition.type == "Complete" else "failed"
            JOBS_FINISHED.add(mode, result, condition.reason or "")


def _mode(job: batch_v1.Job) -> str:
    return job.spec.completion_mode or "NonIndexed"


def policy_applied(actions: Sequence[str]) -> None:
    """Count the actions of a pod failure policy for failed pods."""
    for action in actions:
        POLICY_ACTIONS.add(action)


def pod_changed(change: Change[core_v1.Pod]) -> None:
    """Count a terminated pod that got the finalizer, or lost it (upstream: recordFinishedPodWithTrackingFinalizer)."""
    old, new = (change.new, None) if change.type == "DELETED" else (change.old, change.new)
    was, now = (pod is not None and is_terminal(pod) and FINALIZER in pod.metadata.finalizers for pod in (old, new))
    if was != now:
        TRACKED_PODS.add("add" if now else "delete")
