"""A node as the scheduler sees it: its allocatable resources and their use by each pod; updated pod by pod."""

from __future__ import annotations

import itertools

from control.scheduler.podinfo import PodInfo, normalized_image
from kube.api import core_v1
from kube.host_ports import Ports
from kube.pod_requests import Amounts, amounts
from kube.taints import PREFER_NO_SCHEDULE

_generations = itertools.count(1)


class NodeInfo:
    """Capacity and use of one node. `generation` rises with every change, over all nodes."""

    def __init__(self, node: core_v1.Node) -> None:
        self.name = node.metadata.name or ""
        self.cpu = self.memory = self.score_cpu = self.score_memory = 0
        self._others: dict[str, Amounts] = {}
        """Requests of pods for resources other than cpu and memory, by the keys of the pods that have some."""
        self.pods: dict[str, PodInfo] = {}
        self.ports: dict[str, Ports] = {}
        """The ports of the pods that take some, by the pods' keys."""
        self.set_node(node)

    def set_node(self, node: core_v1.Node) -> None:
        self.node = node
        self.labels = node.metadata.labels
        self.taints = node.spec.taints
        self.hard_taints = [taint for taint in self.taints if taint.effect != PREFER_NO_SCHEDULE]
        self.soft_taints = [taint for taint in self.taints if taint.effect == PREFER_NO_SCHEDULE]
        self.allocatable: Amounts = amounts(node.status.allocatable)
        self.cpu_capacity = self.allocatable.get("cpu", 0)
        self.memory_capacity = self.allocatable.get("memory", 0)
        self.pod_capacity = self.allocatable.get("pods", 0)
        self.images = {
            normalized_image(name): image.size_bytes or 0 for image in node.status.images for name in image.names
        }
        self.touch()

    def touch(self) -> None:
        """Invalidate cached results of the node."""
        self.generation = next(_generations)

    def used(self, resource: str) -> int:
        """Return what the pods take of a resource other than cpu and memory."""
        return sum(taken.get(resource, 0) for taken in self._others.values())

    def add(self, pod: PodInfo) -> None:
        self.pods[pod.key] = pod
        if pod.ports:
            self.ports[pod.key] = pod.ports
        if pod.others:
            self._others[pod.key] = pod.others
        self._count(pod, 1)

    def remove(self, pod: PodInfo) -> None:
        if self.pods.pop(pod.key, None) is not None:
            self.ports.pop(pod.key, None)
            self._others.pop(pod.key, None)
            self._count(pod, -1)

    def _count(self, pod: PodInfo, sign: int) -> None:
        self.cpu += sign * pod.cpu
        self.memory += sign * pod.memory
        self.score_cpu += sign * pod.score_cpu
        self.score_memory += sign * pod.score_memory
        self.touch()
