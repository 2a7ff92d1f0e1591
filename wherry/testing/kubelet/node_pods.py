"""The pods of one simulated node, for its kubelet's API."""

from __future__ import annotations

from collections.abc import Sequence

from agent.interfaces import PodView
from wherry.testing.nodes.container import SimulatedContainer
from wherry.testing.nodes.nodes import SimulatedNodes
from wherry.testing.nodes.pod import SimulatedPod


class NodePods:
    """Finds the pods that a node runs."""

    def __init__(self, nodes: SimulatedNodes, node: str) -> None:
        self._nodes, self._node = nodes, node

    def views(self) -> Sequence[PodView]:
        """Return all pods."""
        return [pod.view() for pod in self._nodes.pods.on_node(self._node)]

    def view(self, namespace: str, name: str) -> PodView | None:
        """Return one pod."""
        pod = self._nodes.pods.find(namespace, name)
        return pod.view() if pod is not None and pod.pod.spec.node_name == self._node else None

    def container(self, container_id: str) -> SimulatedContainer | None:
        """Return an instance of a container by its ID."""
        found = (
            pod.instances.containers.get(container_id)
            for pod in self._nodes.pods.on_node(self._node)
            if _has(pod, container_id)
        )
        return next(found, None)


def _has(pod: SimulatedPod, container_id: str) -> bool:
    return container_id in pod.instances.containers
