"""NodeName: a pod that names its node goes there or nowhere."""

from __future__ import annotations

from control.scheduler.framework import Rejection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo


class NodeName:
    name = "NodeName"
    _rejection = Rejection(name, ("node(s) didn't match the requested node name",), unresolvable=True)

    def filter(self, pod: PodInfo, node: NodeInfo) -> Rejection | None:
        """Compare spec.nodeName, where there is one."""
        wanted = pod.pod.spec.node_name
        return self._rejection if wanted and wanted != node.name else None
