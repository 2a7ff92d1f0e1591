"""NodeResourcesBalancedAllocation: prefer the node whose cpu and memory would be used in like shares."""

from __future__ import annotations

from control.scheduler.framework import MAX_SCORE
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo


class BalancedAllocation:
    name = "NodeResourcesBalancedAllocation"
    weight = 1
    normalized = ""

    def applies(self, pod: PodInfo) -> bool:
        """Pods that ask for neither would all be drawn to one node."""
        return bool(pod.cpu or pod.memory)

    def score(self, pod: PodInfo, node: NodeInfo) -> int:
        """Take the standard deviation of the two shares (half their difference) from the full score."""
        if not node.cpu_capacity or not node.memory_capacity:
            return MAX_SCORE
        cpu = min(1.0, (node.cpu + pod.cpu) / node.cpu_capacity)
        memory = min(1.0, (node.memory + pod.memory) / node.memory_capacity)
        return int((1 - abs(cpu - memory) / 2) * MAX_SCORE)
