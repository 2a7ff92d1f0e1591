"""Filter of PodTopologySpread for a dry run that removes pods from one node and adds them again.

Pods are counted by domain once. A pod that is removed or added changes one domain, that of its node, so a check costs the
constraints and not the nodes: the minimum is the count of this domain or the minimum of the others, and the two lowest counts
are known (upstream: AddPod and RemovePod of the plugin, and its critical paths).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence, Set

from control.scheduler.framework import Rejection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.pod_selection import PodSelection
from control.scheduler.podinfo import PodInfo
from control.scheduler.spreads import Spread

NAME = "PodTopologySpread"
MISSING = Rejection(
    NAME, ("node(s) didn't match pod topology spread constraints (missing required label)",), unresolvable=True
)
SKEWED = Rejection(NAME, ("node(s) didn't match pod topology spread constraints",))
_UNLIMITED = 2**63


class DomainCounts:
    """Pods that one constraint counts, by domain."""

    def __init__(
        self, constraint: Spread, pod: PodInfo, counts: Mapping[str, int], domains: Set[str], eligible: Set[str] | None
    ) -> None:
        """`counts` are those of now; `domains` all domains; `eligible` the names of nodes that count, None: all."""
        self.selection = constraint.pod_selection(pod.namespace)
        self._key, self._eligible = constraint.key, eligible
        self._room = constraint.max_skew - (1 if constraint.selector.matches(pod.labels) else 0)
        self._counts, self._domains = dict(counts), domains
        self._enough = len(domains) >= max(constraint.min_domains, 1)
        lowest = heapq.nsmallest(2, ((counts.get(value, 0), value) for value in domains)) if self._enough else []
        self._least, self._emptiest = lowest[0] if lowest else (0, "")
        self._second = lowest[1][0] if len(lowest) > 1 else _UNLIMITED

    def moved(self, node: NodeInfo, sign: int) -> None:
        """Count a matching pod that was added (1) or removed (-1)."""
        if self._eligible is None or node.name in self._eligible:
            value = node.labels[self._key]
            self._counts[value] = self._counts.get(value, 0) + sign

    def filter(self, node: NodeInfo) -> Rejection | None:
        """Check the node's domain."""
        value = node.labels.get(self._key)
        if value is None:
            return MISSING
        number = self._counts.get(value, 0)
        least = 0
        if self._enough:
            least = self._second if value == self._emptiest else self._least
            if value in self._domains:
                least = min(least, number)
        return SKEWED if number > self._room + least else None


class SpreadDryRun:
    """All constraints of a pod that filter."""

    def __init__(self, constraints: Sequence[DomainCounts]) -> None:
        self._constraints = constraints
        self._by_selection: dict[PodSelection, list[DomainCounts]] = {}
        for each in constraints:
            self._by_selection.setdefault(each.selection, []).append(each)
        self._node: NodeInfo | None = None
        self._matching: dict[PodInfo, list[DomainCounts]] = {}
        """The constraints that count a pod of this node."""

    def prepare(self, pod: PodInfo, node: NodeInfo) -> None:
        """Compare a pod of the node with the selectors."""
        if node is not self._node:
            self._matching.clear()
            self._node = node
        if pod not in self._matching:
            self._matching[pod] = [
                each for selection, found in self._by_selection.items() if selection.matches(pod) for each in found
            ]

    def moved(self, pod: PodInfo, node: NodeInfo, sign: int) -> None:
        """Count a pod that was added to a node (1) or removed from it (-1)."""
        self.prepare(pod, node)
        for each in self._matching[pod]:
            each.moved(node, sign)

    def filter(self, node: NodeInfo) -> Rejection | None:
        """Check every constraint."""
        for each in self._constraints:
            rejection = each.filter(node)
            if rejection is not None:
                return rejection
        return None
