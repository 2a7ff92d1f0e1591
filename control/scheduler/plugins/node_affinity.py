"""NodeAffinity: nodeSelector and required node affinity filter, preferred terms score."""

from __future__ import annotations

from control.scheduler.framework import Rejection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from kube.node_affinity import preferred_weight, required_matches


class NodeAffinity:
    name = "NodeAffinity"
    weight = 2
    normalized = "up"
    _rejection = Rejection(name, ("node(s) didn't match Pod's node affinity/selector",), unresolvable=True)

    def filter(self, pod: PodInfo, node: NodeInfo) -> Rejection | None:
        """Refuse a node that the selector or the required terms do not match."""
        return None if required_matches(pod.pod.spec, node.node) else self._rejection

    def applies(self, pod: PodInfo) -> bool:
        """True where there are preferred terms."""
        affinity = pod.pod.spec.affinity.node_affinity if pod.pod.spec.affinity else None
        return affinity is not None and bool(affinity.preferred_during_scheduling_ignored_during_execution)

    def score(self, pod: PodInfo, node: NodeInfo) -> int:
        """Add up the weights of the preferred terms that match."""
        return preferred_weight(pod.pod.spec, node.node)
