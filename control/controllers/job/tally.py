"""Counting a Job's finished pods once each, whatever crashes in between.

A pod carries a finalizer until it is counted. First its UID is written into status.uncountedTerminatedPods, then the
finalizer is taken off, and only then is the UID turned into a count; so at every moment each pod stands in exactly one
place. Succeeded pods of an Indexed Job need no UID: their index in completedIndexes is enough.

Where each index has a limit of its own, the last failed pod of an index also carries how often the index has failed: it is
held until its replacement carries that on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from control.controllers.job import indexes, policies
from control.controllers.job.indexes import Indexes
from kube.api import batch_v1, core_v1
from kube.clock import parse_time

FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
FAILURE = "FailureTarget"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"


@dataclass(slots=True)
class Tally:
    """Totals of a Job's pods."""

    succeeded: int = 0
    failed: int = 0
    uncounted_succeeded: list[str] = field(default_factory=list)
    uncounted_failed: list[str] = field(default_factory=list)
    completed: Indexes = field(default_factory=Indexes)
    failed_indexes: Indexes = field(default_factory=Indexes)
    untrack: list[core_v1.Pod] = field(default_factory=list)
    """Pods whose finalizer is to go once the status is written."""
    fail_job: str = ""
    """The message of the rule of the pod failure policy that ends the Job."""
    fresh_failures: list[core_v1.Pod] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    """Actions of the pod failure policy for pods that are released."""

    @property
    def all_succeeded(self) -> int:
        return self.succeeded + len(self.uncounted_succeeded)

    @property
    def all_failed(self) -> int:
        return self.failed + len(self.uncounted_failed)


def is_indexed(job: batch_v1.Job) -> bool:
    return job.spec.completion_mode == "Indexed"


def replaces_only_failed(job: batch_v1.Job) -> bool:
    """True if a pod is replaced when it has failed, and not already when it is being deleted."""
    return job.spec.pod_replacement_policy == "Failed" or job.spec.pod_failure_policy is not None


def index_of(pod: core_v1.Pod) -> int:
    """Return a pod's completion index, -1 where it has none."""
    return _number(pod, INDEX, -1)


def is_failed(job: batch_v1.Job, pod: core_v1.Pod) -> bool:
    if pod.status.phase == "Failed":
        return True
    if replaces_only_failed(job):
        return False
    return pod.metadata.deletion_timestamp is not None and pod.status.phase != "Succeeded"


def text_length(job: batch_v1.Job) -> int:
    """Return the number of characters of the sets of indexes in a Job, all of which may be parsed to plan it."""
    rules = job.spec.success_policy.rules if job.spec.success_policy else []
    texts = [job.status.completed_indexes, job.status.failed_indexes, *(rule.succeeded_indexes for rule in rules)]
    return sum(len(text or "") for text in texts)


def tally(job: batch_v1.Job, pods: Sequence[core_v1.Pod], ending: str = "") -> Tally:
    """Count the pods; changes nothing.

    `ending` is the verdict on the Job, if there is one, or says that it is deleted: then no pod will be replaced any more, and
    all are released, those that still run as failed ones where the Job has failed.
    Upstream: trackJobStatusAndRemoveFinalizers.
    """
    result = _started(job)
    tracked = {pod.metadata.uid or "": pod for pod in pods if FINALIZER in pod.metadata.finalizers}
    _count_noted(result, job, tracked)
    retained = set() if ending else {pod.metadata.uid or "" for pod in latest_failures(job, pods).values()}
    indexed, completions = is_indexed(job), job.spec.completions or 0
    done, given_up = set[int](), set[int]()
    for uid, pod in tracked.items():
        index = index_of(pod)
        in_range = not indexed or 0 <= index < completions
        if pod.status.phase == "Succeeded":
            result.untrack.append(pod)
            if not indexed:
                result.uncounted_succeeded.append(uid)
            elif in_range:
                done.add(index)
        elif is_failed(job, pod):
            action, message = policies.judge(job.spec.pod_failure_policy, pod)
            if _gives_up(job, pod, action):
                given_up.add(index)
            over = any(index in known for known in (given_up, done, result.failed_indexes, result.completed))
            if uid in retained and not over and action != policies.FAIL_JOB:
                continue
            _count_failure(result, pod, action, message, counts=in_range)
        elif ending:
            result.untrack.append(pod)
            if ending == FAILURE and in_range:
                result.uncounted_failed.append(uid)
    result.completed |= indexes.of(done)
    result.failed_indexes = (result.failed_indexes | indexes.of(given_up - {-1})) - result.completed
    if indexed:
        result.succeeded, result.uncounted_succeeded = len(result.completed), []
    return result


def _started(job: batch_v1.Job) -> Tally:
    """Return what the Job's status has counted already."""
    status, completions = job.status, job.spec.completions or 0
    result = Tally(succeeded=status.succeeded or 0, failed=status.failed or 0)
    if is_indexed(job):
        result.completed = indexes.parse(status.completed_indexes, completions)
        result.failed_indexes = indexes.parse(status.failed_indexes, completions)
    return result


def _count_noted(tally: Tally, job: batch_v1.Job, tracked: dict[str, core_v1.Pod]) -> None:
    """Count pods that the status names as finished and whose finalizer is gone; take the others out of `tracked`."""
    noted = job.status.uncounted_terminated_pods or batch_v1.UncountedTerminatedPods()
    for uid in noted.succeeded:
        if uid in tracked:
            tally.uncounted_succeeded.append(uid)
            tally.untrack.append(tracked.pop(uid))
        else:
            tally.succeeded += 1
    for uid in noted.failed:
        if uid in tracked:
            tally.uncounted_failed.append(uid)
            tally.untrack.append(tracked.pop(uid))
        else:
            tally.failed += 1


def _gives_up(job: batch_v1.Job, pod: core_v1.Pod, action: str) -> bool:
    """True if this failure is the last that the pod's index may have."""
    limit = job.spec.backoff_limit_per_index
    if limit is None or action == policies.IGNORE:
        return False
    return action == policies.FAIL_INDEX or failures_before(pod) >= limit


def _count_failure(tally: Tally, pod: core_v1.Pod, action: str, message: str, *, counts: bool) -> None:
    """Release a failed pod, and count it unless a rule ignores its failure or its index is none of the Job's."""
    tally.untrack.append(pod)
    if message:
        tally.actions.append(action)
    if action == policies.IGNORE or not counts:
        return
    if action == policies.FAIL_JOB:
        tally.fail_job = tally.fail_job or message
    tally.uncounted_failed.append(pod.metadata.uid or "")
    tally.fresh_failures.append(pod)


def failures_before(pod: core_v1.Pod) -> int:
    """Return how often the pod's index had failed when the pod was made."""
    return _number(pod, FAILURES)


def failures_after(job: batch_v1.Job, pod: core_v1.Pod) -> tuple[int, int]:
    """Return how often a failed pod's index has failed now, and how often that did not count."""
    ignored = policies.judge(job.spec.pod_failure_policy, pod)[0] == policies.IGNORE
    return failures_before(pod) + (not ignored), _number(pod, IGNORED) + ignored


def latest_failures(job: batch_v1.Job, pods: Sequence[core_v1.Pod]) -> dict[int, core_v1.Pod]:
    """Return each index's last failed pod that has no successor yet; nothing for Jobs without limits for indexes.

    A pod without the finalizer is none: it was released to be deleted, and its index has not failed by that.
    """
    if job.spec.backoff_limit_per_index is None:
        return {}
    latest: dict[int, core_v1.Pod] = {}
    for pod in pods:
        known = latest.get(index_of(pod))
        if known is None or _generation(pod) > _generation(known):
            latest[index_of(pod)] = pod
    return {
        index: pod
        for index, pod in latest.items()
        if index >= 0 and FINALIZER in pod.metadata.finalizers and is_failed(job, pod)
    }


def finished_at(pod: core_v1.Pod) -> datetime | None:
    """Return when the last container of a pod ended."""
    ends = [
        parse_time(status.state.terminated.finished_at)
        for status in pod.status.container_statuses
        if status.state and status.state.terminated and status.state.terminated.finished_at
    ]
    return max(ends, default=None)


def ended_at(pod: core_v1.Pod) -> datetime | None:
    """Return when a failed pod ended, as nearly as it is known: one that never ran has no containers that ended."""
    ready = next((c for c in pod.status.conditions if c.type == "Ready" and c.status == "False"), None)
    times = (ready.last_transition_time if ready is not None else None, pod.metadata.creation_timestamp)
    return finished_at(pod) or next((parse_time(time) for time in times if time), None)


def _generation(pod: core_v1.Pod) -> tuple[int, str]:
    return _number(pod, FAILURES) + _number(pod, IGNORED), pod.metadata.creation_timestamp or ""


def _number(pod: core_v1.Pod, annotation: str, default: int = 0) -> int:
    """Read a number that anybody may have written into a pod; the default where it has no, or more than ten, digits."""
    text = pod.metadata.annotations.get(annotation, "")
    return int(text) if text.isdecimal() and len(text) <= 10 else default
