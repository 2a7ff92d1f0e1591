"""NodeUnschedulable: cordoned nodes take only pods that tolerate it."""

from __future__ import annotations

from control.scheduler.framework import Rejection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from kube.api import core_v1
from kube.taints import NO_SCHEDULE

_CORDON = core_v1.Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


class NodeUnschedulable:
    name = "NodeUnschedulable"
    _rejection = Rejection(name, ("node(s) were unschedulable",), unresolvable=True)

    def filter(self, pod: PodInfo, node: NodeInfo) -> Rejection | None:
        """Refuse spec.unschedulable."""
        if not node.node.spec.unschedulable or pod.tolerations.tolerate(_CORDON):
            return None
        return self._rejection
