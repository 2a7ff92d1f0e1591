"""NodePorts: a host port can be had once for an address and protocol."""

from __future__ import annotations

from control.scheduler.framework import Rejection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import HostPort, PodInfo


class NodePorts:
    name = "NodePorts"
    _rejection = Rejection(name, ("node(s) didn't have free ports for the requested pod ports",))

    def filter(self, pod: PodInfo, node: NodeInfo) -> Rejection | None:
        """Refuse a node where one of the pod's host ports is in use; 0.0.0.0 is in the way of every address."""
        if not pod.ports or not node.ports:
            return None
        clash = any(_overlap(wanted, used) for wanted in pod.ports for used in node.ports)
        return self._rejection if clash else None


def _overlap(a: HostPort, b: HostPort) -> bool:
    return a[1:] == b[1:] and (a[0] == b[0] or "0.0.0.0" in (a[0], b[0]))
