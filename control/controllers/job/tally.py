"""Counting a Job's finished pods once each, whatever crashes in between.

A pod carries a finalizer until it is counted. First its UID is written into status.uncountedTerminatedPods, then the
finalizer is taken off, and only then is the UID turned into a count; so at every moment each pod stands in exactly one
place. Succeeded pods of an Indexed Job need no UID: their index in completedIndexes is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from control.controllers.job import indexes, policies
from kube.api import batch_v1, core_v1

FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"


@dataclass(slots=True)
class Tally:
    """What a Job's pods come to."""

    succeeded: int = 0
    failed: int = 0
    uncounted_succeeded: list[str] = field(default_factory=list)
    uncounted_failed: list[str] = field(default_factory=list)
    completed: set[int] = field(default_factory=set)
    failed_indexes: set[int] = field(default_factory=set)
    untrack: list[core_v1.Pod] = field(default_factory=list)
    """Pods whose finalizer is to go once the status is written."""
    fail_job: str = ""
    """The message of the rule of the pod failure policy that ends the Job."""
    fresh_failures: list[core_v1.Pod] = field(default_factory=list)

    @property
    def all_succeeded(self) -> int:
        return self.succeeded + len(self.uncounted_succeeded)

    @property
    def all_failed(self) -> int:
        return self.failed + len(self.uncounted_failed)


def is_indexed(job: batch_v1.Job) -> bool:
    return job.spec.completion_mode == "Indexed"


def replaces_only_failed(job: batch_v1.Job) -> bool:
    """True where a pod is replaced when it has failed, and not already when it is being deleted."""
    return job.spec.pod_replacement_policy == "Failed" or job.spec.pod_failure_policy is not None


def index_of(pod: core_v1.Pod) -> int:
    """Return a pod's completion index, -1 where it has none."""
    text = pod.metadata.annotations.get(INDEX, "")
    return int(text) if text.isdigit() else -1


def is_failed(job: batch_v1.Job, pod: core_v1.Pod) -> bool:
    if pod.status.phase == "Failed":
        return True
    if replaces_only_failed(job):
        return False
    return pod.metadata.deletion_timestamp is not None and pod.status.phase != "Succeeded"


def tally(job: batch_v1.Job, pods: Sequence[core_v1.Pod]) -> Tally:
    """Count the pods; changes nothing."""
    status, completions = job.status, job.spec.completions or 0
    indexed = is_indexed(job)
    result = Tally(succeeded=status.succeeded or 0, failed=status.failed or 0)
    if indexed:
        result.completed = indexes.parse(status.completed_indexes, completions)
        result.failed_indexes = indexes.parse(status.failed_indexes, completions)
    tracked = {pod.metadata.uid or "": pod for pod in pods if FINALIZER in pod.metadata.finalizers}
    noted = status.uncounted_terminated_pods or batch_v1.UncountedTerminatedPods()
    for uid in noted.succeeded:
        if uid in tracked:
            result.uncounted_succeeded.append(uid)
            result.untrack.append(tracked.pop(uid))
        else:
            result.succeeded += 1
    for uid in noted.failed:
        if uid in tracked:
            result.uncounted_failed.append(uid)
            result.untrack.append(tracked.pop(uid))
        else:
            result.failed += 1
    for uid, pod in list(tracked.items()):
        if pod.status.phase == "Succeeded":
            result.untrack.append(pod)
            index = index_of(pod)
            if not indexed:
                result.uncounted_succeeded.append(uid)
            elif 0 <= index < completions:
                result.completed.add(index)
        elif is_failed(job, pod):
            result.untrack.append(pod)
            action, message = policies.judge(job.spec.pod_failure_policy, pod)
            if action == policies.IGNORE:
                continue
            if action == policies.FAIL_JOB:
                result.fail_job = result.fail_job or message
            if job.spec.backoff_limit_per_index is not None and (
                action == policies.FAIL_INDEX or failures_before(pod) >= job.spec.backoff_limit_per_index
            ):
                result.failed_indexes.add(index_of(pod))
            result.uncounted_failed.append(uid)
            result.fresh_failures.append(pod)
    result.failed_indexes -= result.completed | {-1}
    if indexed:
        result.succeeded, result.uncounted_succeeded = len(result.completed), []
    return result


def failures_before(pod: core_v1.Pod) -> int:
    """Return how often the pod's index had failed when the pod was made."""
    text = pod.metadata.annotations.get(FAILURES, "")
    return int(text) if text.isdigit() else 0
