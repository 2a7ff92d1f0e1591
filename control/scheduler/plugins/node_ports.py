"""NodePorts: a host port can be used once for an address and protocol."""

from __future__ import annotations

from control.scheduler.framework import Rejection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from kube.host_ports import overlap


class NodePorts:
    name = "NodePorts"
    _rejection = Rejection(name, ("node(s) didn't have free ports for the requested pod ports",))

    def filter(self, pod: PodInfo, node: NodeInfo) -> Rejection | None:
        """Refuse a node where one of the pod's host ports is in use; 0.0.0.0 is in the way of every address."""
        if not pod.ports or not node.ports:
            return None
        return self._rejection if any(overlap(pod.ports, taken) for taken in node.ports.values()) else None
