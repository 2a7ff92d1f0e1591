"""A Deployment's status: counts, and the conditions Available, Progressing and ReplicaFailure.

`kubectl rollout status` and `kubectl wait` read these. Progress is any rise of updated, ready or available pods, or fall
of old ones; without it for progressDeadlineSeconds the rollout counts as stuck.
Upstream: pkg/controller/deployment/{progress,sync}.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from kube.api import apps_v1
from kube.clock import after, format_time, parse_time

from .revisions import NO_DEADLINE, max_unavailable, total_available, total_wanted, wanted

Condition = apps_v1.DeploymentCondition
Status = apps_v1.DeploymentStatus
COMPLETE, PROGRESSING, TIMED_OUT = "NewReplicaSetAvailable", "ReplicaSetUpdated", "ProgressDeadlineExceeded"
PAUSED, RESUMED = "DeploymentPaused", "DeploymentResumed"


def has_deadline(deployment: apps_v1.Deployment) -> bool:
    deadline = deployment.spec.progress_deadline_seconds
    return deadline is not None and deadline != NO_DEADLINE


def find(conditions: Sequence[Condition], type_: str) -> Condition | None:
    return next((c for c in conditions if c.type == type_), None)


def without(conditions: Sequence[Condition], type_: str) -> list[Condition]:
    return [c for c in conditions if c.type != type_]


def with_condition(conditions: Sequence[Condition], new: Condition) -> list[Condition]:
    """Put a condition in; the same status and reason change nothing, the same status keeps its transition time."""
    old = find(conditions, new.type)
    if old is not None and old.status == new.status and old.reason == new.reason:
        return list(conditions)
    if old is not None and old.status == new.status:
        new = msgspec.structs.replace(new, last_transition_time=old.last_transition_time)
    return [*without(conditions, new.type), new]


def condition(type_: str, status: str, reason: str, message: str, now: datetime) -> Condition:
    stamp = format_time(now)
    return Condition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        last_update_time=stamp,
        last_transition_time=stamp,
    )


def count(
    deployment: apps_v1.Deployment, sets: Sequence[apps_v1.ReplicaSet], new: apps_v1.ReplicaSet | None, now: datetime
) -> Status:
    """Return the counts, with the Available condition brought up to date."""
    available = total_available(sets)
    if available >= wanted(deployment) - max_unavailable(deployment):
        reason, message, state = "MinimumReplicasAvailable", "Deployment has minimum availability.", "True"
    else:
        reason, message = "MinimumReplicasUnavailable", "Deployment does not have minimum availability."
        state = "False"
    return Status(
        observed_generation=deployment.metadata.generation,
        replicas=sum(rs.status.replicas for rs in sets) or None,
        updated_replicas=(new.status.replicas if new else 0) or None,
        ready_replicas=sum(rs.status.ready_replicas or 0 for rs in sets) or None,
        available_replicas=available or None,
        unavailable_replicas=max(0, total_wanted(sets) - available) or None,
        terminating_replicas=sum(rs.status.terminating_replicas or 0 for rs in sets),
        collision_count=deployment.status.collision_count,
        conditions=with_condition(deployment.status.conditions, condition("Available", state, reason, message, now)),
    )


def rollout(
    deployment: apps_v1.Deployment, sets: Sequence[apps_v1.ReplicaSet], new: apps_v1.ReplicaSet | None, now: datetime
) -> Status:
    """Return the counts with the Progressing and ReplicaFailure conditions."""
    status = count(deployment, sets, new, now)
    conditions = status.conditions
    if not has_deadline(deployment):
        conditions = without(conditions, "Progressing")
    current = find(deployment.status.conditions, "Progressing")
    settled = (
        (status.replicas or 0) == (status.updated_replicas or 0) and current is not None and current.reason == COMPLETE
    )
    if has_deadline(deployment) and not settled:
        what = f'ReplicaSet "{new.metadata.name}"' if new else f'Deployment "{deployment.metadata.name}"'
        if complete(deployment, status):
            done = condition("Progressing", "True", COMPLETE, f"{what} has successfully progressed.", now)
            conditions = with_condition(conditions, done)
        elif progressed(deployment.status, status):
            moving = condition("Progressing", "True", PROGRESSING, f"{what} is progressing.", now)
            if current is not None:
                if current.status == "True":
                    moving = msgspec.structs.replace(moving, last_transition_time=current.last_transition_time)
                conditions = without(conditions, "Progressing")
            conditions = with_condition(conditions, moving)
        elif timed_out(deployment, current, now):
            stuck = condition("Progressing", "False", TIMED_OUT, f"{what} has timed out progressing.", now)
            conditions = with_condition(conditions, stuck)
    failure = _failure(sets, new)
    if failure is None:
        conditions = without(conditions, "ReplicaFailure")
    else:
        conditions = with_condition(conditions, failure)
    return msgspec.structs.replace(status, conditions=conditions)


def complete(deployment: apps_v1.Deployment, status: Status) -> bool:
    """True if every wanted pod is of the new template and available, and no old one is left."""
    size = wanted(deployment)
    return (
        (status.updated_replicas or 0) == size
        and (status.replicas or 0) == size
        and (status.available_replicas or 0) == size
        and (status.observed_generation or 0) >= (deployment.metadata.generation or 0)
    )


def progressed(old: Status, new: Status) -> bool:
    def left(status: Status) -> int:
        return (status.replicas or 0) - (status.updated_replicas or 0)

    return (
        (new.updated_replicas or 0) > (old.updated_replicas or 0)
        or left(new) < left(old)
        or (new.ready_replicas or 0) > (old.ready_replicas or 0)
        or (new.available_replicas or 0) > (old.available_replicas or 0)
    )


def timed_out(deployment: apps_v1.Deployment, current: Condition | None, now: datetime) -> bool:
    if current is None or current.reason == COMPLETE:
        return False
    if current.reason == TIMED_OUT:
        return True
    return deadline_in(deployment, current, now) < 0


def deadline_in(deployment: apps_v1.Deployment, current: Condition, now: datetime) -> float:
    """Return the seconds until the progress deadline."""
    since = parse_time(current.last_update_time) if current.last_update_time else now
    return (after(since, deployment.spec.progress_deadline_seconds or 0) - now).total_seconds()


def check_stuck_in(deployment: apps_v1.Deployment, status: Status, now: datetime) -> float | None:
    """Return the seconds after which to look whether the rollout is stuck; None if there is no need."""
    current = find(status.conditions, "Progressing")
    if not has_deadline(deployment) or current is None:
        return None
    if complete(deployment, status) or current.reason in (TIMED_OUT, PAUSED):
        return None
    return max(1.0, deadline_in(deployment, current, now) + 1)


def paused(deployment: apps_v1.Deployment, now: datetime) -> list[Condition] | None:
    """Return the conditions with the pause or its end in Progressing; None if nothing is to be said."""
    if not has_deadline(deployment):
        return None
    current = find(deployment.status.conditions, "Progressing")
    if current is not None and current.reason == TIMED_OUT:
        return None
    was_paused = current is not None and current.reason == PAUSED
    if deployment.spec.paused and not was_paused:
        new = condition("Progressing", "Unknown", PAUSED, "Deployment is paused", now)
    elif not deployment.spec.paused and was_paused:
        new = condition("Progressing", "Unknown", RESUMED, "Deployment is resumed", now)
    else:
        return None
    return with_condition(deployment.status.conditions, new)


def _failure(sets: Sequence[apps_v1.ReplicaSet], new: apps_v1.ReplicaSet | None) -> Condition | None:
    """Return the new set's ReplicaFailure as the Deployment's, or else an old one's."""
    ordered = [new, *sets] if new else list(sets)
    for rs in ordered:
        for found in rs.status.conditions:
            if found.type == "ReplicaFailure":
                return Condition(
                    type=found.type,
                    status=found.status,
                    reason=found.reason,
                    message=found.message,
                    last_update_time=found.last_transition_time,
                    last_transition_time=found.last_transition_time,
                )
    return None
