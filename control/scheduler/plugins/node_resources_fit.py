"""NodeResourcesFit: requests must fit into what is free; the emptier node scores higher (LeastAllocated)."""

from __future__ import annotations

from control.scheduler.framework import MAX_SCORE, Rejection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo


class NodeResourcesFit:
    name = "NodeResourcesFit"
    weight = 1
    normalized = ""

    def filter(self, pod: PodInfo, node: NodeInfo) -> Rejection | None:
        """Name every resource that is short; more than the node has at all cannot be helped by preemption."""
        if (
            len(node.pods) < node.pod_capacity
            and pod.cpu <= node.cpu_capacity - node.cpu
            and pod.memory <= node.memory_capacity - node.memory
            and not pod.others
        ):
            return None
        reasons, hopeless = [], False
        if len(node.pods) + 1 > node.pod_capacity:
            reasons.append("Too many pods")
        if pod.cpu and pod.cpu > node.cpu_capacity - node.cpu:
            reasons.append("Insufficient cpu")
            hopeless |= pod.cpu > node.cpu_capacity
        if pod.memory and pod.memory > node.memory_capacity - node.memory:
            reasons.append("Insufficient memory")
            hopeless |= pod.memory > node.memory_capacity
        for resource, wanted in pod.others.items():
            capacity = node.allocatable.get(resource, 0)
            if wanted > capacity - node.others.get(resource, 0):
                reasons.append(f"Insufficient {resource}")
                hopeless |= wanted > capacity
        return Rejection(self.name, tuple(reasons), hopeless) if reasons else None

    def applies(self, pod: PodInfo) -> bool:
        return True

    def score(self, pod: PodInfo, node: NodeInfo) -> int:
        """Average the free shares of cpu and memory after the pod, with defaults for what containers do not ask for."""
        total = weights = 0
        for capacity, used in (
            (node.cpu_capacity, node.score_cpu + pod.score_cpu),
            (node.memory_capacity, node.score_memory + pod.score_memory),
        ):
            if capacity:
                weights += 1
                if used <= capacity:
                    total += (capacity - used) * MAX_SCORE // capacity
        return total // weights if weights else 0
