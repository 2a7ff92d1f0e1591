"""The next step of a StatefulSet. Pure.

OrderedReady takes one step at a time: each ordinal waits for the one before to be available, scaling down goes from the
top, and so does an update. Parallel does all at once, up to BURST pods, but updates keep their order. A step is not taken
before the one before it shows. No cost depends on the number of replicas wanted, only on the pods that exist.
Upstream: pkg/controller/statefulset/stateful_set_control.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

from control.controllers import pods as pod_rules
from control.controllers.rounding import scaled
from control.controllers.statefulset.identity import first_ordinal, ordinal_of, revision_of
from kube.api import apps_v1, core_v1

BURST = 500
"""Most creations and deletions in one plan (upstream: MaxBatchSize)."""


@dataclass(slots=True)
class StatefulPlan:
    create: list[tuple[int, str]] = field(default_factory=list)
    """(ordinal, name of the revision) of pods to make."""
    delete: list[core_v1.Pod] = field(default_factory=list)
    failed: list[core_v1.Pod] = field(default_factory=list)
    """Those among the pods to delete that have ended, well or not."""
    condemned: list[core_v1.Pod] = field(default_factory=list)
    """Pods beyond the wanted ordinals, the highest first."""
    pending: list[core_v1.Pod] = field(default_factory=list)
    """Pods that have not started: deleted claims of theirs are to be recreated."""
    status: apps_v1.StatefulSetStatus = field(default_factory=apps_v1.StatefulSetStatus)


def plan(
    sts: apps_v1.StatefulSet,
    pods: Sequence[core_v1.Pod],
    current: str,
    update: str,
    now: datetime,
    reserved: Set[int] = frozenset(),
) -> StatefulPlan:
    """Compare a StatefulSet with its pods; `current` and `update` are names of revisions.

    `reserved` has the ordinals whose pods, where they are missing, must wait for claims that are about to go.
    """
    first, size = first_ordinal(sts), 1 if sts.spec.replicas is None else sts.spec.replicas
    wanted = range(first, first + size)
    by_ordinal = {ordinal: pod for pod in pods if (ordinal := ordinal_of(sts, pod)) is not None}
    present = {ordinal: by_ordinal[ordinal] for ordinal in sorted(by_ordinal) if ordinal in wanted}
    result = StatefulPlan()
    result.status = _status(sts, pods, size, current, update, now)
    result.condemned = [by_ordinal[ordinal] for ordinal in sorted(by_ordinal.keys() - present.keys(), reverse=True)]
    if sts.metadata.deletion_timestamp is not None:
        return result
    result.pending = [pod for pod in present.values() if _pending(pod)]
    ordered = sts.spec.pod_management_policy != "Parallel"
    fill = _fill_in_order if ordered else _fill_at_once
    missing, ended, done = fill(sts, present, wanted, reserved, now)
    result.create = [(ordinal, _revision_for(sts, ordinal, current, update)) for ordinal in missing]
    result.failed, result.delete = ended, list(ended)
    if done and _shrink(sts, by_ordinal, ordered=ordered, result=result, now=now):
        _update(sts, present, wanted, update, result, now)
    return result


def _available(sts: apps_v1.StatefulSet, pod: core_v1.Pod, now: datetime) -> bool:
    return pod.status.phase == "Running" and pod_rules.is_available(pod, sts.spec.min_ready_seconds or 0, now)


def _healthy(pod: core_v1.Pod) -> bool:
    return pod.status.phase == "Running" and pod_rules.is_ready(pod) and pod.metadata.deletion_timestamp is None


def _ended(pod: core_v1.Pod) -> bool:
    return pod.status.phase in ("Failed", "Succeeded") and pod.metadata.deletion_timestamp is None


def _pending(pod: core_v1.Pod) -> bool:
    return pod.status.phase in (None, "", "Pending") and pod.metadata.deletion_timestamp is None


def _partition(sts: apps_v1.StatefulSet) -> int | None:
    strategy = sts.spec.update_strategy
    return strategy.rolling_update.partition if strategy and strategy.rolling_update else None


def max_unavailable(sts: apps_v1.StatefulSet) -> int:
    """Return the number of pods that may be unavailable during an update."""
    rolling = sts.spec.update_strategy.rolling_update if sts.spec.update_strategy else None
    limit = rolling.max_unavailable if rolling and rolling.max_unavailable is not None else 1
    return max(1, scaled(limit, 1 if sts.spec.replicas is None else sts.spec.replicas, round_up=True))


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


Filled = tuple[list[int], list[core_v1.Pod], bool]
"""(ordinals of pods to make, ended pods to delete, True if nothing has to be waited for)."""


def _fill_in_order(
    sts: apps_v1.StatefulSet,
    present: Mapping[int, core_v1.Pod],
    wanted: range,
    reserved: Set[int],
    now: datetime,
) -> Filled:
    """Go up to the first ordinal that is not available."""
    for ordinal in wanted:
        pod = present.get(ordinal)
        if pod is None:
            return [] if ordinal in reserved else [ordinal], [], False
        if _ended(pod):
            return [], [pod], False
        if pod.metadata.deletion_timestamp is not None or not _available(sts, pod, now):
            return [], [], False
    return [], [], True


def _fill_at_once(
    sts: apps_v1.StatefulSet,
    present: Mapping[int, core_v1.Pod],
    wanted: range,
    reserved: Set[int],
    now: datetime,
) -> Filled:
    """Take the lowest ordinals, as many as a plan may hold; the next plan continues. Those held back stop no others."""
    ended = [pod for pod in present.values() if _ended(pod)][:BURST]
    missing = (ordinal for ordinal in wanted if ordinal not in present and ordinal not in reserved)
    created = list(islice(missing, BURST - len(ended)))
    return created, ended, not ended and not created


def _shrink(
    sts: apps_v1.StatefulSet,
    by_ordinal: dict[int, core_v1.Pod],
    *,
    ordered: bool,
    result: StatefulPlan,
    now: datetime,
) -> bool:
    """Delete what is too many, from the top; False if that has to be waited for."""
    if not ordered:
        result.delete += [pod for pod in result.condemned if pod.metadata.deletion_timestamp is None][:BURST]
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
    present: dict[int, core_v1.Pod],
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
    allowed = max_unavailable(sts)
    lowest = first_ordinal(sts) + (_partition(sts) or 0)
    down = {o for o, pod in present.items() if not (_healthy(pod) and _available(sts, pod, now))}
    absent = len(wanted) - len(present)
    new = sum(1 for o in down if revision_of(present[o]) == update or present[o].metadata.deletion_timestamp)
    budget, room = allowed - len(down) - absent, min(allowed - new - absent, BURST)
    for ordinal, pod in reversed(present.items()):
        if ordinal < lowest or room <= 0:
            break
        if pod.metadata.deletion_timestamp is not None or revision_of(pod) == update:
            continue
        if ordinal not in down and budget <= 0:
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
