"""Plans a Job: its status, pods to create and to delete, pods to release. Pure.

A Job ends in two steps: the verdict (SuccessCriteriaMet or FailureTarget), upon which its running pods are deleted, and, when
none is left and all are counted, the end (Complete or Failed). Upstream: pkg/controller/job/job_controller.go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

import msgspec

from control.controllers import pods as pod_rules
from control.controllers.job import indexes, policies
from control.controllers.job.backoff import Backoff, index_waits
from control.controllers.job.surplus import surplus
from control.controllers.job.tally import (
    FINALIZER,
    Tally,
    index_of,
    is_indexed,
    replaces_only_failed,
    tally,
)
from kube.api import batch_v1, core_v1
from kube.clock import after, format_time, parse_time

Condition = batch_v1.JobCondition
Verdict = tuple[str, str, str]
"""(condition type, reason, message): SuccessCriteriaMet or FailureTarget."""

SucceededEarly = Callable[[batch_v1.SuccessPolicy | None, indexes.Indexes, int], str]
"""Evaluates a success policy (policies.succeeded_early), or returns a stored result."""

BURST = 500
"""Most creations or deletions in one plan (upstream: MaxPodCreateDeletePerSync)."""
_REACHED = "Reached expected number of succeeded pods"


@dataclass(slots=True)
class JobPlan:
    status: batch_v1.JobStatus
    create: list[int] = field(default_factory=list)
    """Completion indexes of pods to make; -1 for each pod of a Job without indexes."""
    delete: list[core_v1.Pod] = field(default_factory=list)
    untrack: list[core_v1.Pod] = field(default_factory=list)
    events: list[tuple[str, str, str]] = field(default_factory=list)
    again: float | None = None
    tally: Tally = field(default_factory=Tally)


def has(job: batch_v1.Job, type_: str) -> bool:
    return any(c.type == type_ and c.status == "True" for c in job.status.conditions)


def finished(job: batch_v1.Job) -> bool:
    return has(job, "Complete") or has(job, "Failed")


def plan(
    job: batch_v1.Job,
    pods: Sequence[core_v1.Pod],
    *,
    settled: bool,
    backoff: Backoff,
    now: datetime,
    succeeded_early: SucceededEarly = policies.succeeded_early,
) -> JobPlan:
    """Compare a Job with its pods; `settled`: no creation or deletion is under way."""
    if finished(job):
        return JobPlan(job.status, untrack=[pod for pod in pods if FINALIZER in pod.metadata.finalizers])
    counted = tally(job, pods, ending="Deleted" if job.metadata.deletion_timestamp is not None else "")
    active = [pod for pod in pods if pod_rules.is_active(pod)]
    terminating = [pod for pod in pods if pod_rules.is_terminating(pod)]
    result = JobPlan(job.status, untrack=counted.untrack, tally=counted)
    verdict = _verdict(job, counted, active, now, succeeded_early)
    if verdict is not None:
        counted = tally(job, pods, ending=verdict[0])
        result.untrack, result.tally = counted.untrack, counted
    suspended = bool(job.spec.suspend) and verdict is None
    start = job.status.start_time
    conditions = list(job.status.conditions)
    if verdict is None:
        conditions, start = _suspension(job, conditions, start, result, now)
    if verdict is not None or suspended:
        if settled:
            result.delete = active[:BURST]
    elif settled and job.metadata.deletion_timestamp is None:
        waits = index_waits(job, pods, now)
        _manage(job, counted, active, terminating, backoff, waits, result, now)
    if verdict is not None:
        conditions = _concluded(job, conditions, verdict, counted, active, terminating, result, now)
    ended = any(c.type in ("Complete", "Failed") and c.status == "True" for c in conditions)
    complete = any(c.type == "Complete" and c.status == "True" for c in conditions)
    deadline = job.spec.active_deadline_seconds
    if deadline is not None and start and verdict is None:
        left = (after(parse_time(start), deadline) - now).total_seconds()
        result.again = left if result.again is None else min(result.again, left)
    indexed = is_indexed(job)
    result.status = batch_v1.JobStatus(
        active=len(active) or None,
        ready=sum(1 for pod in active if pod_rules.is_ready(pod)),
        terminating=len(terminating),
        succeeded=counted.succeeded or None,
        failed=counted.failed or None,
        completed_indexes=indexes.render(counted.completed) or None if indexed else None,
        failed_indexes=(
            indexes.render(counted.failed_indexes) if job.spec.backoff_limit_per_index is not None else None
        ),
        conditions=conditions,
        start_time=start,
        completion_time=(job.status.completion_time or format_time(now)) if ended and complete else None,
        uncounted_terminated_pods=batch_v1.UncountedTerminatedPods(
            succeeded=counted.uncounted_succeeded, failed=counted.uncounted_failed
        ),
    )
    return result


def _verdict(
    job: batch_v1.Job,
    counted: Tally,
    active: Sequence[core_v1.Pod],
    now: datetime,
    succeeded_early: SucceededEarly,
) -> Verdict | None:
    """Return how the Job has ended, if it has."""
    for known in job.status.conditions:
        if known.type in ("FailureTarget", "SuccessCriteriaMet") and known.status == "True":
            return known.type, known.reason or "", known.message or ""
    failure = _failure(job, counted, active, now)
    if failure is not None:
        return ("FailureTarget", *failure)
    completions = job.spec.completions
    if is_indexed(job):
        early = succeeded_early(job.spec.success_policy, counted.completed, completions or 0)
        if early:
            return "SuccessCriteriaMet", "SuccessPolicy", early
    if completions is None:
        done = counted.all_succeeded > 0 and not active
    else:
        done = counted.all_succeeded >= completions
    return ("SuccessCriteriaMet", "CompletionsReached", _REACHED) if done else None


def _failure(job: batch_v1.Job, counted: Tally, active: Sequence[core_v1.Pod], now: datetime) -> tuple[str, str] | None:
    """Return (reason, message) where the Job has failed."""
    spec = job.spec
    if counted.fail_job:
        return "PodFailurePolicy", counted.fail_job
    limit = spec.backoff_limit if spec.backoff_limit is not None else 6
    restarted = spec.template.spec.restart_policy == "OnFailure" and (
        policies.restarts(active) >= limit if limit else policies.restarts(active) > 0
    )
    if counted.all_failed > limit or restarted:
        return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    if spec.active_deadline_seconds is not None and job.status.start_time and not spec.suspend:
        if (now - parse_time(job.status.start_time)).total_seconds() >= spec.active_deadline_seconds:
            return "DeadlineExceeded", "Job was active longer than specified deadline"
    if spec.backoff_limit_per_index is not None and spec.completions is not None:
        lost = len(counted.failed_indexes)
        if spec.max_failed_indexes is not None and lost > spec.max_failed_indexes:
            return "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"
        if lost and lost + len(counted.completed) >= spec.completions:
            return "FailedIndexes", "Job has failed indexes"
    return None


def _suspension(
    job: batch_v1.Job, conditions: list[Condition], start: str | None, result: JobPlan, now: datetime
) -> tuple[list[Condition], str | None]:
    """Bring the Suspended condition and the start time up to date."""
    was = next((c for c in conditions if c.type == "Suspended"), None)
    if job.spec.suspend:
        if was is None or was.status != "True":
            conditions = _set(conditions, "Suspended", "True", "JobSuspended", "Job suspended", now)
            result.events.append(("Normal", "Suspended", "Job suspended"))
            start = None  # its pods may be given another place or size meanwhile (KEP-5440)
        return conditions, start
    if was is not None and was.status == "True":
        conditions = _set(conditions, "Suspended", "False", "JobResumed", "Job resumed", now)
        result.events.append(("Normal", "Resumed", "Job resumed"))
        return conditions, format_time(now)
    return conditions, start or format_time(now)


def _concluded(
    job: batch_v1.Job,
    conditions: list[Condition],
    verdict: Verdict,
    counted: Tally,
    active: Sequence[core_v1.Pod],
    terminating: Sequence[core_v1.Pod],
    result: JobPlan,
    now: datetime,
) -> list[Condition]:
    """Write down the verdict, and the end once nothing is left to wait for."""
    type_, reason, message = verdict
    conditions = _set(conditions, type_, "True", reason, message, now)
    if active or terminating or counted.uncounted_succeeded or counted.uncounted_failed or counted.untrack:
        return conditions
    if type_ == "SuccessCriteriaMet":
        if job.spec.completions is not None and counted.succeeded > job.spec.completions:
            text = "Too many succeeded pods running after completion count reached"
            result.events.append(("Warning", "TooManySucceededPods", text))
        result.events.append(("Normal", "Completed", "Job completed"))
        return _set(conditions, "Complete", "True", reason, message, now)
    result.events.append(("Warning", reason, message))
    return _set(conditions, "Failed", "True", reason, message, now)


def _set(
    conditions: list[Condition], type_: str, status: str, reason: str, message: str, now: datetime
) -> list[Condition]:
    stamp = format_time(now)
    new = Condition(
        type=type_, status=status, reason=reason, message=message, last_probe_time=stamp, last_transition_time=stamp
    )
    for position, old in enumerate(conditions):
        if old.type == type_:
            if old.status == status:
                return conditions
            return [*conditions[:position], new, *conditions[position + 1 :]]
    return [*conditions, new]


def _manage(
    job: batch_v1.Job,
    counted: Tally,
    active: list[core_v1.Pod],
    terminating: Sequence[core_v1.Pod],
    backoff: Backoff,
    waits: dict[int, float],
    result: JobPlan,
    now: datetime,
) -> None:
    """Decide how many pods to make or delete."""
    parallelism = job.spec.parallelism if job.spec.parallelism is not None else 1
    completions = job.spec.completions
    if completions is None:
        wanted = len(active) if counted.all_succeeded else parallelism
    else:
        wanted = max(0, min(completions - counted.all_succeeded, parallelism))
    result.delete = surplus(job, counted, active, wanted, now)[:BURST]
    if result.delete:
        return
    occupied = [*active, *terminating] if replaces_only_failed(job) else active
    missing = min(wanted - len(occupied), BURST)
    if missing <= 0:
        return
    wait = backoff.wait(now) if job.spec.backoff_limit_per_index is None else 0.0
    if wait:
        result.again = wait
        return
    if completions is None or not is_indexed(job):
        result.create = [-1] * missing
        return
    taken = indexes.of(index_of(pod) for pod in occupied) | counted.completed | counted.failed_indexes
    startable = (index for index in taken.missing(completions) if not waits.get(index))
    result.create = list(islice(startable, missing))
    delayed = [wait for index, wait in waits.items() if wait and index < completions and index not in taken]
    if delayed and len(result.create) < missing:
        result.again = min(delayed)


def same_status(a: batch_v1.JobStatus, b: batch_v1.JobStatus) -> bool:
    """Compare two statuses, taking no list of uncounted pods for an empty one."""
    none = batch_v1.UncountedTerminatedPods()
    return msgspec.structs.replace(a, uncounted_terminated_pods=a.uncounted_terminated_pods or none) == (
        msgspec.structs.replace(b, uncounted_terminated_pods=b.uncounted_terminated_pods or none)
    )
