"""DefaultPreemption: make room for a pod by evicting less important ones.

For each node that eviction could help, all pods of lower priority are lifted off (in the cache, for a moment), and those
that still fit beside the new pod are reprieved, the most important first. Of the nodes the one is taken whose victims matter
least: fewest budgets broken, lowest top priority, lowest sum, fewest, youngest. Upstream: framework/preemption.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from control.scheduler.algorithm import Algorithm
from control.scheduler.budgets import Budgets
from control.scheduler.cluster import Cluster
from control.scheduler.framework import Diagnosis, histogram
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from control.scheduler.steps import OutOfSteps, Steps

NOT_ELIGIBLE = "not eligible"
"""How it begins to be said that a pod may not preempt (any more)."""
MOST_CHECKS, CHECKED_BYTES = 5000, 4096
"""How often one attempt may check whether a pod fits; one of so many bytes counts once more for each."""
FREE_BUDGETS, LIFTED = 64, 8
"""Budgets of one pod, and pods that are lifted off a node, that cost as much as a check."""


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods to evict from one node, most important first."""

    node: str
    pods: tuple[PodInfo, ...]
    violations: int

    @property
    def cost(self) -> tuple[int, int, int, int, str]:
        """Sort key: the least is the best node."""
        top = self.pods[0].priority
        newest = min((p.pod.status.start_time or "" for p in self.pods if p.priority == top), default="")
        inverted = "".join(chr(0x10FFFF - ord(c)) for c in newest)
        return (self.violations, top, sum(p.priority + 2**31 for p in self.pods), len(self.pods), inverted)


def not_eligible(pod: PodInfo, cluster: Cluster) -> str:
    """Return why a pod may not preempt; "" where it may."""
    if pod.pod.spec.preemption_policy == "Never":
        return f"{NOT_ELIGIBLE} due to preemptionPolicy=Never."
    nominated = cluster.nodes.get(pod.pod.status.nominated_node_name or "")
    if nominated is not None and any(p.priority < pod.priority and _preempted(p) for p in nominated.pods.values()):
        return f"{NOT_ELIGIBLE} due to a terminating pod on the nominated node."
    return ""


def _preempted(pod: PodInfo) -> bool:
    """True where a pod is on its way out because of a preemption."""
    return pod.pod.metadata.deletion_timestamp is not None and any(
        c.type == "DisruptionTarget" and c.status == "True" and c.reason == "PreemptionByScheduler"
        for c in pod.pod.status.conditions
    )


def explain(diagnosis: Diagnosis) -> str:
    """Return why preemption helps on no node."""
    reasons = [
        "Preemption is not helpful for scheduling" if r.unresolvable else "No preemption victims found for incoming pod"
        for r in diagnosis.rejections.values()
    ]
    return f"0/{diagnosis.nodes} nodes are available: {histogram(reasons)}."


def find(
    pod: PodInfo,
    diagnosis: Diagnosis,
    algorithm: Algorithm,
    cluster: Cluster,
    budgets: Budgets,
) -> Victims | None:
    """Return the victims whose eviction lets the pod onto a node, or None."""
    return best(candidates(pod, diagnosis, algorithm, cluster, budgets))


def best(found: Sequence[Victims]) -> Victims | None:
    """Return the victims that matter least."""
    return min(found, key=lambda victims: victims.cost, default=None)


def candidates(
    pod: PodInfo,
    diagnosis: Diagnosis,
    algorithm: Algorithm,
    cluster: Cluster,
    budgets: Budgets,
) -> list[Victims]:
    """Return for each node that eviction could help whom to evict from it."""
    result: list[Victims] = []
    share, least = algorithm.profile.candidates
    most = max(least, len(cluster.order) * share // 100)
    search = _Search(pod, algorithm, cluster, budgets)
    names = [name for name, rejection in diagnosis.rejections.items() if not rejection.unresolvable]
    start = cluster.preemption_start % len(names) if names else 0
    for looked, name in enumerate(itertools.chain(names[start:], names[:start])):
        node = cluster.nodes.get(name)
        try:
            found = search.victims_on(node) if node is not None else None
        except OutOfSteps:
            cluster.preemption_start = start + max(looked, 1)  # the next attempt begins there
            return result
        if found is not None:
            result.append(found)
            if len(result) >= most:
                break
    cluster.preemption_start = 0
    return result


class _Search:
    """The search for victims of one pod, over all nodes: so many checks of the pod, the larger it is the fewer."""

    def __init__(self, pod: PodInfo, algorithm: Algorithm, cluster: Cluster, budgets: Budgets) -> None:
        self._pod, self._algorithm, self._cluster, self._budgets = pod, algorithm, cluster, budgets
        self._steps = Steps(MOST_CHECKS)
        self._price = 1 + pod.size // CHECKED_BYTES

    def victims_on(self, node: NodeInfo) -> Victims | None:
        """Return whom to evict from a node; raises OutOfSteps."""
        pod, cluster = self._pod, self._cluster
        lower = [p for p in node.pods.values() if p.priority < pod.priority]
        if not lower:
            return None
        lower.sort(key=lambda p: (-p.priority, p.pod.status.start_time or ""))
        self._steps.take(len(lower) // LIFTED + sum(p.size // CHECKED_BYTES for p in lower))
        violating = overdrawn_by(lower, self._budgets, self._steps)
        lifted = {other.key: other for other in lower}
        for other in lower:
            cluster.lift(other, node)
        try:
            if not self._fits(node):
                return None
            victims: list[PodInfo] = []
            for other in [p for p in lower if p.key in violating] + [p for p in lower if p.key not in violating]:
                cluster.put_back(lifted.pop(other.key), node)
                if not self._fits(node):
                    cluster.lift(other, node)
                    lifted[other.key] = other
                    victims.append(other)
        finally:
            for other in lifted.values():
                cluster.put_back(other, node)
        if not victims:
            return None
        victims.sort(key=lambda p: (-p.priority, p.pod.status.start_time or ""))
        return Victims(node.name, tuple(victims), sum(1 for p in victims if p.key in violating))

    def _fits(self, node: NodeInfo) -> bool:
        self._steps.take(self._price)
        return self._algorithm.fits_with_all(self._pod, node)


def overdrawn_by(pods: Sequence[PodInfo], budgets: Budgets, steps: Steps) -> set[str]:
    """Return the pods whose eviction would overdraw a disruption budget, taking them in order; raises OutOfSteps."""
    left: dict[int, int] = {}
    over: set[str] = set()
    for pod in pods:
        for number, budget in enumerate(budgets.of(pod, steps)):
            if number % FREE_BUDGETS == FREE_BUDGETS - 1:
                steps.take()
            if pod.pod.metadata.name in budget.status.disrupted_pods:
                continue
            left[id(budget)] = left.get(id(budget), budget.status.disruptions_allowed or 0) - 1
            if left[id(budget)] < 0:
                over.add(pod.key)
    return over
