"""DefaultPreemption: make room for a pod by evicting less important ones.

For each node that eviction could help, all pods of lower priority are lifted off (in the cache, for a moment), and those
that still fit beside the new pod are put back, the most important first. Of the nodes the one is taken whose victims matter
least: fewest budgets broken, lowest top priority, lowest sum, fewest, youngest. Upstream: framework/preemption.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from control.scheduler.algorithm import Algorithm
from control.scheduler.cluster import Cluster
from control.scheduler.framework import Diagnosis, histogram
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from kube.api import policy_v1
from kube.selectors import LabelSelector, from_label_selector

NOT_ELIGIBLE = "not eligible"
"""How it begins to be said that a pod may not preempt (any more)."""


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
    budgets: Callable[[], Sequence[policy_v1.PodDisruptionBudget]],
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
    budgets: Callable[[], Sequence[policy_v1.PodDisruptionBudget]],
) -> list[Victims]:
    """Return for each node that eviction could help whom to evict from it."""
    result: list[Victims] = []
    share, least = algorithm.profile.candidates
    most = max(least, len(cluster.order) * share // 100)
    disruptions = _Budgets(budgets())
    for name, rejection in diagnosis.rejections.items():
        if rejection.unresolvable:
            continue
        node = cluster.nodes.get(name)
        found = _victims_on(pod, node, algorithm, cluster, disruptions) if node is not None else None
        if found is not None:
            result.append(found)
            if len(result) >= most:
                break
    return result


def _victims_on(
    pod: PodInfo,
    node: NodeInfo,
    algorithm: Algorithm,
    cluster: Cluster,
    budgets: _Budgets,
) -> Victims | None:
    lower = [p for p in node.pods.values() if p.priority < pod.priority]
    if not lower:
        return None
    lower.sort(key=lambda p: (-p.priority, p.pod.status.start_time or ""))
    violating = budgets.overdrawn_by(lower)
    lifted = list(lower)
    for other in lifted:
        cluster.lift(other, node)
    try:
        if not algorithm.fits_with_all(pod, node):
            return None
        victims: list[PodInfo] = []
        for other in [p for p in lower if p.key in violating] + [p for p in lower if p.key not in violating]:
            cluster.put_back(other, node)
            lifted.remove(other)
            if not algorithm.fits_with_all(pod, node):
                cluster.lift(other, node)
                lifted.append(other)
                victims.append(other)
    finally:
        for other in lifted:
            cluster.put_back(other, node)
    if not victims:
        return None
    victims.sort(key=lambda p: (-p.priority, p.pod.status.start_time or ""))
    return Victims(node.name, tuple(victims), sum(1 for p in victims if p.key in violating))


class _Budgets:
    """The disruption budgets by namespace. A selector is read once an attempt, where a pod of its namespace may go."""

    def __init__(self, budgets: Sequence[policy_v1.PodDisruptionBudget]) -> None:
        self._by_namespace: dict[str, list[policy_v1.PodDisruptionBudget]] = {}
        for budget in budgets:
            self._by_namespace.setdefault(budget.metadata.namespace or "", []).append(budget)
        self._read: dict[str, list[tuple[policy_v1.PodDisruptionBudget, LabelSelector]]] = {}

    def _of(self, namespace: str) -> list[tuple[policy_v1.PodDisruptionBudget, LabelSelector]]:
        if namespace not in self._read:
            found = self._by_namespace.get(namespace, ())
            self._read[namespace] = [(b, from_label_selector(b.spec.selector)) for b in found]
        return self._read[namespace]

    def overdrawn_by(self, pods: Sequence[PodInfo]) -> set[str]:
        """Return the pods whose eviction would overdraw a disruption budget, taking them in order."""
        left: dict[int, int] = {}
        over: set[str] = set()
        for pod in pods:
            for budget, selector in self._of(pod.namespace):
                if selector.empty or not selector.matches(pod.labels):
                    continue
                if pod.pod.metadata.name in budget.status.disrupted_pods:
                    continue
                left[id(budget)] = left.get(id(budget), budget.status.disruptions_allowed or 0) - 1
                if left[id(budget)] < 0:
                    over.add(pod.key)
        return over
