"""Nominated pods: those that are to go to a node as soon as their victims have left it."""

from __future__ import annotations

from control.scheduler.podinfo import PodInfo


class Nominations:
    """Nominated pods by node. A pod is nominated for one node at most."""

    def __init__(self) -> None:
        self.by_node: dict[str, dict[str, PodInfo]] = {}
        """The pods by their keys, of the nodes that have any."""
        self._nodes: dict[str, str] = {}

    def add(self, pod: PodInfo, node: str) -> None:
        """Keep room on a node for a pod that waits for its victims to go."""
        self.withdraw(pod.key)
        self._nodes[pod.key] = node
        self.by_node.setdefault(node, {})[pod.key] = pod

    def withdraw(self, key: str) -> None:
        """Forget a pod's nomination."""
        node = self._nodes.pop(key, None)
        if node is not None:
            self.by_node[node].pop(key, None)
            if not self.by_node[node]:
                del self.by_node[node]

    def has(self, key: str) -> bool:
        """Return whether a pod is nominated for a node."""
        return key in self._nodes

    def node_of(self, key: str) -> str | None:
        """Return the node that a pod is nominated for."""
        return self._nodes.get(key)

    def above(self, pod: PodInfo, node: str) -> list[PodInfo]:
        """Return the other pods of this priority or higher that are nominated for a node."""
        found = self.by_node.get(node)
        if not found:
            return []
        return [other for other in found.values() if other.priority >= pod.priority and other.key != pod.key]
