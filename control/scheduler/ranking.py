"""Feasible nodes of identical pods, best first: in a large cluster one filtering and scoring serves several pods.

A pod that takes its node from here is treated as if it had found the same nodes as the pod before it. What is best is decided
anew for each: a node that changed since (the last pod went there) is filtered and scored again when it is first in order. A
node that became better meanwhile is found by the next filtering, so a ranking serves only so many pods and changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heapreplace

from control.scheduler.candidates import NodeResult
from control.scheduler.cluster import Cluster
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo

SHARE = 8
"""Nodes for each pod that a ranking serves. Upstream filters a new sample of the nodes for each pod, which spreads pods."""


class Ranking:
    """Nodes that are feasible for pods of one signature, if only scores of single nodes that are not normalized differ.

    `judge` filters and scores a node for such a pod, which is not bound yet: the pods before it are by now.
    """

    def __init__(
        self,
        cluster: Cluster,
        nodes: Sequence[NodeInfo],
        results: Sequence[NodeResult],
        judge: Callable[[PodInfo, NodeInfo], NodeResult],
    ) -> None:
        self._cluster, self._judge = cluster, judge
        self._heap = [
            (-result.fixed, position, result.generation, node)
            for position, (node, result) in enumerate(zip(nodes, results, strict=True))
        ]
        heapify(self._heap)
        self._left = len(nodes) // SHARE
        self._last_change = cluster.changes + len(nodes)

    def next(self, pod: PodInfo) -> NodeInfo | None:
        """Return the best node for one more pod; None if the nodes must be filtered again."""
        cluster, heap = self._cluster, self._heap
        if self._left == 0 or cluster.changes > self._last_change:
            return None
        while heap:
            _, position, generation, node = heap[0]
            if cluster.nodes.get(node.name) is not node:
                heappop(heap)
            elif node.generation == generation:
                self._left -= 1
                return node
            else:
                result = self._judge(pod, node)
                if result.rejection is not None:
                    heappop(heap)
                elif any(result.relative):
                    return None
                else:
                    heapreplace(heap, (-result.fixed, position, result.generation, node))
        return None
