"""Taint eviction: evicts pods from nodes whose NoExecute taints they do not tolerate, or no longer tolerate.

A pod that tolerates all such taints for a limited time is evicted after the shortest of its tolerationSeconds, counted from
when the taint was first observed here. If the taint is removed before, the eviction is cancelled. Upstream:
pkg/controller/tainteviction.
"""

from __future__ import annotations

from collections.abc import Sequence

from control.controllers.context import Context
from control.controllers.nodes.lifecycle import ON_NODE, by_node
from control.controllers.pod_disruption import disrupt
from kube.api import core_v1
from kube.clock import MOST_SECONDS
from kube.controller import Controller
from kube.informer import Change
from kube.object_names import key_of
from kube.taints import NO_EXECUTE, tolerates


def no_execute(node: core_v1.Node) -> list[core_v1.Taint]:
    return [taint for taint in node.spec.taints if taint.effect == NO_EXECUTE]


def min_toleration_time(taints: Sequence[core_v1.Taint], tolerations: Sequence[core_v1.Toleration]) -> float | None:
    """Return the seconds for which a pod tolerates taints: 0 not at all, None for ever (upstream: getMinTolerationTime)."""
    shortest: float | None = None
    for taint in taints:
        using = [t for t in tolerations if tolerates(t, taint)]
        if not using:
            return 0.0
        for toleration in using:
            if toleration.toleration_seconds is not None:
                seconds = max(0.0, float(min(toleration.toleration_seconds, MOST_SECONDS)))
                shortest = seconds if shortest is None else min(shortest, seconds)
    return shortest


class TaintEvictionController:
    """Watches nodes and pods. Keys are pods."""

    def __init__(self, context: Context) -> None:
        self._client, self._clock = context.client, context.clock
        self._recorder = context.recorder("taint-eviction-controller")
        self._nodes = context.informers.of(core_v1.Node)
        self._pods = context.informers.of(core_v1.Pod)
        self._pods.add_index(ON_NODE, by_node)
        self._scheduled: dict[str, tuple[str, float]] = {}
        """UID and time of eviction (monotonic seconds) of each pod key."""
        self.controller = Controller(
            "taint eviction", self.reconcile, workers=8, queue="noexec_taint_pod", clock=context.clock
        )
        self._nodes.subscribe(self._node_changed)
        self._pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _node_changed(self, change: Change[core_v1.Node]) -> None:
        old = no_execute(change.old) if change.old is not None else []
        if change.type != "DELETED" and old != no_execute(change.new):
            for pod in self._pods.by_index(ON_NODE, change.key):
                self.controller.enqueue(key_of(pod))

    def _pod_changed(self, change: Change[core_v1.Pod]) -> None:
        pod, old = change.new, change.old
        if change.type == "DELETED":
            self._scheduled.pop(change.key, None)
        elif old is None or old.spec.node_name != pod.spec.node_name or old.spec.tolerations != pod.spec.tolerations:
            node = self._nodes.get(pod.spec.node_name or "")
            if change.key in self._scheduled or (node is not None and no_execute(node)):
                self.controller.enqueue(change.key)

    async def reconcile(self, key: str) -> float | None:
        """Evict one pod if its toleration has ended; return the seconds until then, None without an eviction."""
        pod = self._pods.get(key)
        node = self._nodes.get(pod.spec.node_name or "") if pod is not None else None
        if pod is None or node is None or pod.metadata.deletion_timestamp is not None:
            self._scheduled.pop(key, None)
            return None
        taints = no_execute(node)
        stay = min_toleration_time(taints, pod.spec.tolerations) if taints else None
        if stay is None:
            if self._scheduled.pop(key, None) is not None:
                self._recorder.event(pod, "Normal", "TaintManagerEviction", f"Cancelling deletion of Pod {key}")
            return None
        now, uid = self._clock.monotonic(), pod.metadata.uid or ""
        scheduled = self._scheduled.get(key)
        if scheduled is None or scheduled[0] != uid:
            scheduled = self._scheduled[key] = (uid, now + stay)
        elif stay == 0.0:
            scheduled = self._scheduled[key] = (uid, now)
        if scheduled[1] > now:
            return scheduled[1] - now
        await self._evict(pod)
        self._scheduled.pop(key, None)
        return None

    async def _evict(self, pod: core_v1.Pod) -> None:
        key = key_of(pod)
        self._recorder.event(pod, "Normal", "TaintManagerEviction", f"Marking for deletion Pod {key}")
        message = "Taint manager: deleting due to NoExecute taint"
        await disrupt(self._client, self._clock, pod, "DeletionByTaintManager", message)
