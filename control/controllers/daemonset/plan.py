"""Plans the pods of a DaemonSet: nodes that need one, pods to delete, and the rollout of a new template. Pure.

A pod belongs to the node that its affinity names, also before it is scheduled. A rolling update deletes old pods while no
more than maxUnavailable nodes lack an available one, or with maxSurge makes the new pod beside the old one first.
Upstream: pkg/controller/daemon/{daemon_controller,update}.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from control.controllers import pods as pod_rules
from control.controllers.history import HASH_LABEL
from control.controllers.rounding import scaled
from kube.api import apps_v1, core_v1
from kube.node_affinity import named_nodes

GENERATION_LABEL, GENERATION = "pod-template-generation", "deprecated.daemonset.template.generation"


@dataclass(slots=True)
class DaemonPlan:
    create: list[str] = field(default_factory=list)
    """Names of nodes to make a pod for."""
    delete: list[core_v1.Pod] = field(default_factory=list)
    failed: list[tuple[core_v1.Pod, str]] = field(default_factory=list)
    """Pods that have ended, well or not, among those to delete, with their nodes."""
    status: apps_v1.DaemonSetStatus = field(default_factory=apps_v1.DaemonSetStatus)
    again: float | None = None
    """Seconds after which a failed pod may be replaced that may not be now."""


def node_of(pod: core_v1.Pod) -> str:
    """Return the node that a daemon pod is on, or is meant for."""
    if pod.spec.node_name:
        return pod.spec.node_name
    names = named_nodes(pod.spec) or set()
    return next(iter(names), "")


def plan(
    ds: apps_v1.DaemonSet,
    pods: Sequence[core_v1.Pod],
    verdicts: Mapping[str, tuple[bool, bool]],
    revision: str,
    *,
    settled: bool,
    now: datetime,
    wait: Callable[[str], float] = lambda node: 0.0,
) -> DaemonPlan:
    """Compare a DaemonSet with its pods; `revision` is the hash of the current template.

    `verdicts` says for each node whether it should have a pod, and whether one there may stay.
    `wait` gives the seconds until a failed pod of a node may be replaced.
    """
    by_node: dict[str, list[core_v1.Pod]] = {}
    for pod in pods:
        by_node.setdefault(node_of(pod), []).append(pod)
    result = DaemonPlan()
    wanted = {name for name, (should, _) in verdicts.items() if should}
    surge, unavailable = _limits(ds, len(wanted))
    if settled and ds.metadata.deletion_timestamp is None:
        for name, (should, stays) in verdicts.items():
            _manage(
                ds,
                name,
                should=should,
                stays=stays,
                here=by_node.get(name, []),
                revision=revision,
                surge=surge,
                result=result,
                now=now,
                wait=wait,
            )
        for pod in by_node.get("", []):
            result.delete.append(pod)
        strategy = ds.spec.update_strategy
        rolling = strategy is None or strategy.type in (None, "", "RollingUpdate")
        if rolling and not result.create and not result.delete:
            _roll(ds, by_node, wanted, revision, surge, unavailable, result, now)
    result.status = _status(ds, by_node, verdicts, wanted, revision, now)
    return result


def _limits(ds: apps_v1.DaemonSet, wanted: int) -> tuple[int, int]:
    strategy = ds.spec.update_strategy
    rolling = strategy.rolling_update if strategy else None
    surge = scaled(rolling.max_surge if rolling else 0, wanted, round_up=True)
    limit = rolling.max_unavailable if rolling and rolling.max_unavailable is not None else 1
    unavailable = scaled(limit, wanted, round_up=True)
    return surge, unavailable if surge or unavailable else 1


def is_updated(ds: apps_v1.DaemonSet, pod: core_v1.Pod, revision: str) -> bool:
    labels = pod.metadata.labels
    if labels.get(HASH_LABEL) == revision:
        return True
    generation = ds.metadata.annotations.get(GENERATION)
    return generation is not None and labels.get(GENERATION_LABEL) == generation


def _available(ds: apps_v1.DaemonSet, pod: core_v1.Pod, now: datetime) -> bool:
    return pod_rules.is_available(pod, ds.spec.min_ready_seconds or 0, now)


def _manage(
    ds: apps_v1.DaemonSet,
    node: str,
    *,
    should: bool,
    stays: bool,
    here: list[core_v1.Pod],
    revision: str,
    surge: int,
    result: DaemonPlan,
    now: datetime,
    wait: Callable[[str], float],
) -> None:
    """See to it that a node has the one pod it should have, or none."""
    if not stays:
        result.delete += [pod for pod in here if pod.metadata.deletion_timestamp is None]
        return
    alive: list[core_v1.Pod] = []
    for pod in here:
        if pod.metadata.deletion_timestamp is not None:
            continue
        if pod.status.phase == "Failed" and (seconds := wait(node)) > 0:
            result.again = min(seconds, result.again or seconds)
        elif pod.status.phase in ("Failed", "Succeeded"):
            result.delete.append(pod)
            result.failed.append((pod, node))
        else:
            alive.append(pod)
    if not alive:
        # A pod that is still terminating keeps its place, unless new ones may surge past it.
        if should and (not here or (surge and all(p.metadata.deletion_timestamp for p in here))):
            result.create.append(node)
        return
    alive.sort(key=lambda p: (not p.spec.node_name, p.metadata.creation_timestamp or "", p.metadata.name or ""))
    if surge:
        old = [p for p in alive if not is_updated(ds, p, revision)]
        new = [p for p in alive if is_updated(ds, p, revision)]
        result.delete += old[1:] + new[1:]
        # The old pod goes when the new one is available, or at once where it serves nobody.
        if old and new and (_available(ds, new[0], now) or not _available(ds, old[0], now)):
            result.delete.append(old[0])
    else:
        result.delete += alive[1:]


def _roll(
    ds: apps_v1.DaemonSet,
    by_node: Mapping[str, list[core_v1.Pod]],
    wanted: set[str],
    revision: str,
    surge: int,
    unavailable: int,
    result: DaemonPlan,
    now: datetime,
) -> None:
    """Replace old pods on as many nodes as the limits allow."""
    down = surging = 0
    ready_to_go: list[core_v1.Pod] = []
    broken: list[core_v1.Pod] = []
    to_surge: list[tuple[bool, str]] = []
    for node in sorted(wanted):
        here = by_node.get(node, [])
        alive = [p for p in here if p.metadata.deletion_timestamp is None]
        old = [p for p in alive if not is_updated(ds, p, revision)]
        new = [p for p in alive if is_updated(ds, p, revision)]
        if not any(_available(ds, p, now) for p in alive):
            down += 1
        if surge:
            if old and new:
                surging += 1
            elif old:
                to_surge.append((not _available(ds, old[0], now), node))
        elif old and not new:
            (ready_to_go if _available(ds, old[0], now) else broken).append(old[0])
    if surge:
        to_surge.sort(key=lambda item: (not item[0], item[1]))
        result.create += [node for _, node in to_surge[: max(0, surge - surging)]]
        return
    result.delete += broken  # they serve nobody: replacing them costs nothing
    result.delete += ready_to_go[: max(0, unavailable - down)]


def _status(
    ds: apps_v1.DaemonSet,
    by_node: Mapping[str, list[core_v1.Pod]],
    verdicts: Mapping[str, tuple[bool, bool]],
    wanted: set[str],
    revision: str,
    now: datetime,
) -> apps_v1.DaemonSetStatus:
    scheduled = ready = available = updated = misplaced = 0
    for name in verdicts:
        here = by_node.get(name, [])
        if name not in wanted:
            misplaced += 1 if here else 0
            continue
        if not here:
            continue
        scheduled += 1
        first = min(here, key=lambda p: (not pod_rules.is_ready(p), p.metadata.creation_timestamp or ""))
        if pod_rules.is_ready(first):
            ready += 1
            available += 1 if _available(ds, first, now) else 0
        updated += 1 if any(is_updated(ds, p, revision) for p in here) else 0
    return apps_v1.DaemonSetStatus(
        desired_number_scheduled=len(wanted),
        current_number_scheduled=scheduled,
        number_misscheduled=misplaced,
        number_ready=ready,
        number_available=available or None,
        number_unavailable=(len(wanted) - available) or None,
        updated_number_scheduled=updated or None,
        observed_generation=ds.metadata.generation,
        collision_count=ds.status.collision_count,
        conditions=ds.status.conditions,
    )
