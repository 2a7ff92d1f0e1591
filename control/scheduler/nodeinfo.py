"""A node as the scheduler sees it: what it has, what is taken, and by whom; kept up to date pod by pod."""

from __future__ import annotations

import itertools

from control.scheduler.podinfo import PodInfo, normalized_image
from kube.api import core_v1
from kube.host_ports import HostPort
from kube.pod_requests import Amounts, amounts

_generations = itertools.count(1)


class NodeInfo:
    """Capacity and use of one node. `generation` rises with every change, over all nodes."""

    def __init__(self, node: core_v1.Node) -> None:
        self.name = node.metadata.name or ""
        self.cpu = self.memory = self.score_cpu = self.score_memory = 0
        self.others: Amounts = {}
        self.pods: dict[str, PodInfo] = {}
        self.ports: dict[tuple[str, int], dict[str, int]] = {}
        """Protocol and port -> host address -> pods that have it."""
        self.set_node(node)

    def set_node(self, node: core_v1.Node) -> None:
        self.node = node
        self.labels = node.metadata.labels
        self.taints = node.spec.taints
        self.allocatable: Amounts = amounts(node.status.allocatable)
        self.cpu_capacity = self.allocatable.get("cpu", 0)
        self.memory_capacity = self.allocatable.get("memory", 0)
        self.pod_capacity = self.allocatable.get("pods", 0)
        self.images = {
            normalized_image(name): image.size_bytes or 0 for image in node.status.images for name in image.names
        }
        self.touch()

    def touch(self) -> None:
        """Let what was said of the node be worked out anew."""
        self.generation = next(_generations)

    def add(self, pod: PodInfo) -> None:
        self.pods[pod.key] = pod
        self._count(pod, 1)

    def remove(self, pod: PodInfo) -> None:
        if self.pods.pop(pod.key, None) is not None:
            self._count(pod, -1)

    def _count(self, pod: PodInfo, sign: int) -> None:
        self.cpu += sign * pod.cpu
        self.memory += sign * pod.memory
        self.score_cpu += sign * pod.score_cpu
        self.score_memory += sign * pod.score_memory
        for name, value in pod.others.items():
            self.others[name] = self.others.get(name, 0) + sign * value
        for port in pod.ports:
            self._count_port(port, sign)
        self.touch()

    def _count_port(self, port: HostPort, sign: int) -> None:
        address, protocol, number = port
        uses = self.ports.setdefault((protocol, number), {})
        uses[address] = uses.get(address, 0) + sign
        if uses[address] <= 0:
            del uses[address]
        if not uses:
            del self.ports[protocol, number]

    def without(self, victims: list[PodInfo]) -> NodeInfo:
        """Return a copy as it would be with some pods gone (for preemption)."""
        copy = NodeInfo(self.node)
        gone = {pod.key for pod in victims}
        for pod in self.pods.values():
            if pod.key not in gone:
                copy.add(pod)
        return copy
