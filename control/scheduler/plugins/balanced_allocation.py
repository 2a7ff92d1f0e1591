"""NodeResourcesBalancedAllocation: prefer the node whose resources would be used in like shares."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from control.scheduler.framework import MAX_SCORE
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.plugins.node_resources_fit import CPU_AND_MEMORY
from control.scheduler.podinfo import PodInfo


class BalancedAllocation:
    name = "NodeResourcesBalancedAllocation"
    weight = 1
    normalized = ""

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        named = tuple(str(r["name"]) for r in (args or {}).get("resources") or ())
        self._resources = named or tuple(name for name, _ in CPU_AND_MEMORY)
        self._usual = self._resources == ("cpu", "memory")

    def applies(self, pod: PodInfo) -> bool:
        """Pods that request none of the resources would all be drawn to one node."""
        return any(pod.requests.get(resource) for resource in self._resources)

    def score(self, pod: PodInfo, node: NodeInfo) -> int:
        """Take the standard deviation of the shares from the full score."""
        if self._usual and node.cpu_capacity and node.memory_capacity:
            cpu = min(1.0, (node.cpu + pod.cpu) / node.cpu_capacity)
            memory = min(1.0, (node.memory + pod.memory) / node.memory_capacity)
            return int((1 - abs(cpu - memory) / 2) * MAX_SCORE)
        shares = []
        for resource in self._resources:
            capacity = node.allocatable.get(resource, 0)
            if capacity:
                own = {"cpu": node.cpu, "memory": node.memory}
                used = own[resource] if resource in own else node.used(resource)
                shares.append(min(1.0, (used + pod.requests.get(resource, 0)) / capacity))
        if len(shares) < 2:
            return MAX_SCORE
        if len(shares) == 2:
            deviation = abs(shares[0] - shares[1]) / 2
        else:
            mean = sum(shares) / len(shares)
            deviation = math.sqrt(sum((share - mean) ** 2 for share in shares) / len(shares))
        return int((1 - deviation) * MAX_SCORE)
