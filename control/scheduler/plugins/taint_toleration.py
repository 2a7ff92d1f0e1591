"""TaintToleration: untolerated NoSchedule and NoExecute taints keep a pod away, PreferNoSchedule ones are counted against."""

from __future__ import annotations

from control.scheduler.framework import Rejection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from kube.taints import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE

_SOFT = ("", PREFER_NO_SCHEDULE)


class TaintToleration:
    name = "TaintToleration"
    weight = 3
    normalized = "down"
    _rejection = Rejection(name, ("node(s) had untolerated taint(s)",), unresolvable=True)

    def filter(self, pod: PodInfo, node: NodeInfo) -> Rejection | None:
        """Refuse a node with a taint that the pod does not tolerate."""
        if not node.hard_taints:
            return None
        found = pod.tolerations.first_untolerated(node.hard_taints, (NO_SCHEDULE, NO_EXECUTE))
        return self._rejection if found is not None else None

    def applies(self, pod: PodInfo) -> bool:
        return True

    def score(self, pod: PodInfo, node: NodeInfo) -> int:
        """Count the PreferNoSchedule taints that the pod does not tolerate."""
        if not node.soft_taints:
            return 0
        if pod.tolerations.effects.isdisjoint(_SOFT):
            return len(node.soft_taints)
        return sum(1 for taint in node.soft_taints if not pod.tolerations.tolerate(taint))
