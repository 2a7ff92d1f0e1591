"""A number for each node, with its sums by topology domain."""

from __future__ import annotations

from collections.abc import Mapping

from control.scheduler.nodeinfo import NodeInfo


class NodeCounts:
    """A number for each node, and its sums by topology domain."""

    def __init__(self) -> None:
        self.per_node: dict[str, int] = {}
        self._domains: dict[str, dict[str, int]] = {}

    def add(self, node: NodeInfo, number: int) -> None:
        _add(self.per_node, node.name, number)
        for key, sums in self._domains.items():
            value = node.labels.get(key)
            if value is not None:
                _add(sums, value, number)

    def domains(self, key: str, nodes: Mapping[str, NodeInfo]) -> dict[str, int]:
        """Return the sums by the values of a node label; domains with nothing are left out."""
        sums = self._domains.get(key)
        if sums is None:
            sums = self._domains[key] = {}
            for name, number in self.per_node.items():
                node = nodes.get(name)
                value = node.labels.get(key) if node else None
                if value is not None:
                    _add(sums, value, number)
        return sums

    def forget_domains(self) -> None:
        """Node labels changed: the sums are recomputed when needed."""
        self._domains.clear()


def _add(counts: dict[str, int], key: str, number: int) -> None:
    total = counts.get(key, 0) + number
    if total:
        counts[key] = total
    else:
        counts.pop(key, None)
