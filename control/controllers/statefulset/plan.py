"""The next step of a StatefulSet. Pure.

OrderedReady takes one step at a time: each ordinal waits for the one before to be available, scaling down goes from the
top, and so does an update. Parallel does all at once, but updates keep their order. A step is not taken before the one
before it shows. Upstream: pkg/controller/statefulset/stateful_set_control.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from control.controllers import pods as pod_rules
from control.controllers.rounding import scaled
from control.controllers.statefulset.identity import first_ordinal, ordinal_of, revision_of
from kube.api import apps_v1, core_v1


@dataclass(slots=True)
class StatefulPlan:
    create: list[tuple[int, str]] = field(default_factory=list)
    """(ordinal, name of the revision) of pods to make."""
    delete: list[core_v1.Pod] = field(default_factory=list)
    failed: list[core_v1.Pod] = field(default_factory=list)
    """Those among the pods to delete that have ended, well or not."""
    condemned: list[core_v1.Pod] = field(default_factory=list)
    """Pods beyond the wanted ordinals, the highest first."""
    status: apps_v1.StatefulSetStatus = field(default_factory=apps_v1.StatefulSetStatus)


def plan(
    sts: apps_v1.StatefulSet, pods: Sequence[core_v1.Pod], current: str, update: str, now: datetime
) -> StatefulPlan:
    """Compare a StatefulSet with its pods; `current` and `update` are names of revisions."""
    first, size = first_ordinal(sts), 1 if sts.spec.replicas is None else sts.spec.replicas
    by_ordinal = {ordinal: pod for pod in pods if (ordinal := ordinal_of(sts, pod)) is not None}
    result = StatefulPlan()
    result.status = _status(sts, pods, size, current, update, now)
    beyond = [ordinal for ordinal in by_ordinal if not first <= ordinal < first + size]
    result.condemned = [by_ordinal[ordinal] for ordinal in sorted(beyond, reverse=True)]
    if sts.metadata.deletion_timestamp is None:
        ordered = sts.spec.pod_management_policy != "Parallel"
        done = _fill(sts, by_ordinal, range(first, first + size), current, update, ordered, result, now)
        if done and _shrink(sts, by_ordinal, ordered, result, now):
            _update(sts, by_ordinal, range(first, first + size), update, result, now)
    return result


def _available(sts: apps_v1.StatefulSet, pod: core_v1.Pod, now: datetime) -> bool:
    return pod.status.phase == "Running" and pod_rules.is_available(pod, sts.spec.min_ready_seconds or 0, now)


def _healthy(pod: core_v1.Pod) -> bool:
    return pod.status.phase == "Running" and pod_rules.is_ready(pod) and pod.metadata.deletion_timestamp is None


def _partition(sts: apps_v1.StatefulSet) -> int | None:
    strategy = sts.spec.update_strategy
    return strategy.rolling_update.partition if strategy and strategy.rolling_update else None


def is_rolling(sts: apps_v1.StatefulSet) -> bool:
    strategy = sts.spec.update_strategy
    return strategy is None or strategy.type in (None, "", "RollingUpdate")


def _revision_for(sts: apps_v1.StatefulSet, ordinal: int, current: str, update: str) -> str:
    """Return the revision in which a missing pod is made: not every pod may be updated yet."""
    first, partition = first_ordinal(sts), _partition(sts)
    if is_rolling(sts):
        below = (sts.status.current_replicas or 0) if partition is None else partition
        return current if ordinal < first + below else update
    return update


def _fill(
    sts: apps_v1.StatefulSet,
    by_ordinal: dict[int, core_v1.Pod],
    wanted: range,
    current: str,
    update: str,
    ordered: bool,
    result: StatefulPlan,
    now: datetime,
) -> bool:
    """Make what is missing; False where that has to be waited for."""
    complete = True
    for ordinal in wanted:
        pod = by_ordinal.get(ordinal)
        if pod is None:
            result.create.append((ordinal, _revision_for(sts, ordinal, current, update)))
            complete = False
        elif pod.metadata.deletion_timestamp is not None:
            complete = complete and not ordered
        elif pod.status.phase in ("Failed", "Succeeded"):
            result.delete.append(pod)
            result.failed.append(pod)
            complete = False
        elif ordered and not _available(sts, pod, now):
            complete = False
        if ordered and not complete:
            return False
    return complete


def _shrink(
    sts: apps_v1.StatefulSet,
    by_ordinal: dict[int, core_v1.Pod],
    ordered: bool,
    result: StatefulPlan,
    now: datetime,
) -> bool:
    """Delete what is too many, from the top; False where that has to be waited for."""
    if not ordered:
        result.delete += [pod for pod in result.condemned if pod.metadata.deletion_timestamp is None]
        return not result.condemned
    sick = [ordinal for ordinal, pod in by_ordinal.items() if not _healthy(pod)]
    first_sick = by_ordinal[min(sick)] if sick else None
    for pod in result.condemned:
        if pod.metadata.deletion_timestamp is not None:
            return False
        # A sick pod below holds the scaling back, unless it is this one.
        if not (_available(sts, pod, now) or pod is first_sick):
            return False
        result.delete.append(pod)
        return False
    return True


def _update(
    sts: apps_v1.StatefulSet,
    by_ordinal: dict[int, core_v1.Pod],
    wanted: range,
    update: str,
    result: StatefulPlan,
    now: datetime,
) -> None:
    """Delete pods of older revisions, from the top, while no more than maxUnavailable are down.

    One that is down already may go first, but only while so many of the new revision are not: a new revision that is broken
    must not take the place of old pods that may come back.
    """
    if not is_rolling(sts):
        return
    rolling = sts.spec.update_strategy.rolling_update if sts.spec.update_strategy else None
    limit = rolling.max_unavailable if rolling and rolling.max_unavailable is not None else 1
    allowed = max(1, scaled(limit, len(wanted), round_up=True))
    lowest = first_ordinal(sts) + (_partition(sts) or 0)
    down = [
        o for o in wanted if o in by_ordinal and not (_healthy(by_ordinal[o]) and _available(sts, by_ordinal[o], now))
    ]
    absent = sum(1 for ordinal in wanted if ordinal not in by_ordinal)
    new = sum(1 for o in down if revision_of(by_ordinal[o]) == update or by_ordinal[o].metadata.deletion_timestamp)
    budget, room = allowed - len(down) - absent, allowed - new - absent
    for ordinal in reversed([o for o in wanted if o >= lowest]):
        pod = by_ordinal.get(ordinal)
        if pod is None or pod.metadata.deletion_timestamp is not None or revision_of(pod) == update:
            continue
        if room <= 0 or (ordinal not in down and budget <= 0):
            break
        result.delete.append(pod)
        room -= 1
        budget -= ordinal not in down


def _status(
    sts: apps_v1.StatefulSet, pods: Sequence[core_v1.Pod], size: int, current: str, update: str, now: datetime
) -> apps_v1.StatefulSetStatus:
    alive = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
    of_current = sum(1 for pod in alive if revision_of(pod) == current)
    of_update = sum(1 for pod in alive if revision_of(pod) == update)
    ready = sum(1 for pod in pods if pod.status.phase == "Running" and pod_rules.is_ready(pod))
    if is_rolling(sts) and of_update == size == ready == len(pods):
        current, of_current = update, of_update
    return apps_v1.StatefulSetStatus(
        replicas=len(pods),
        ready_replicas=ready or None,
        available_replicas=sum(1 for pod in pods if _available(sts, pod, now)),
        current_replicas=of_current or None,
        updated_replicas=of_update or None,
        current_revision=current,
        update_revision=update,
        observed_generation=sts.metadata.generation,
        collision_count=sts.status.collision_count,
        conditions=sts.status.conditions,
    )
