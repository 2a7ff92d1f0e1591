"""TaintToleration: untolerated NoSchedule and NoExecute taints keep a pod away, PreferNoSchedule ones are counted against."""

from __future__ import annotations

from control.scheduler.framework import Rejection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from kube.taints import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, first_untolerated, tolerated


class TaintToleration:
    name = "TaintToleration"
    weight = 3
    normalized = "down"
    _rejection = Rejection(name, ("node(s) had untolerated taint(s)",), unresolvable=True)

    def filter(self, pod: PodInfo, node: NodeInfo) -> Rejection | None:
        """Refuse a node with a taint that the pod does not tolerate."""
        if not node.taints:
            return None
        found = first_untolerated(node.taints, pod.pod.spec.tolerations, (NO_SCHEDULE, NO_EXECUTE))
        return self._rejection if found is not None else None

    def applies(self, pod: PodInfo) -> bool:
        return True

    def score(self, pod: PodInfo, node: NodeInfo) -> int:
        """Count the PreferNoSchedule taints that the pod does not tolerate."""
        if not node.taints:
            return 0
        tolerations = [t for t in pod.pod.spec.tolerations if t.effect in (None, "", PREFER_NO_SCHEDULE)]
        return sum(
            1 for taint in node.taints if taint.effect == PREFER_NO_SCHEDULE and not tolerated(taint, tolerations)
        )
