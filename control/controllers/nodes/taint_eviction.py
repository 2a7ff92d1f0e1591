"""Taint eviction: pods leave nodes whose NoExecute taints they do not tolerate, or do not tolerate for longer.

A pod that tolerates all such taints for a while leaves when the shortest while is over, counted from when the taint was
first seen here. If the taint goes away before, the eviction is called off. Upstream: pkg/controller/tainteviction.
"""

from __future__ import annotations

from collections.abc import Sequence

from control.controllers.context import Context
from control.controllers.disrupting import disrupt
from control.controllers.nodes.lifecycle import ON_NODE, by_node
from kube.api import core_v1
from kube.client import key_of
from kube.controller import Controller
from kube.informer import Change
from kube.taints import NO_EXECUTE, tolerates


def no_execute(node: core_v1.Node) -> list[core_v1.Taint]:
    return [taint for taint in node.spec.taints if taint.effect == NO_EXECUTE]


def tolerated_for(taints: Sequence[core_v1.Taint], tolerations: Sequence[core_v1.Toleration]) -> float | None:
    """Return the seconds that a pod may stay under these taints: 0 is not at all, None for ever."""
    shortest: float | None = None
    for taint in taints:
        using = [t for t in tolerations if tolerates(t, taint)]
        if not using:
            return 0.0
        for toleration in using:
            if toleration.toleration_seconds is not None:
                seconds = max(0.0, float(toleration.toleration_seconds))
                shortest = seconds if shortest is None else min(shortest, seconds)
    return shortest


class TaintEvictionController:
    """Follows nodes and pods. Keys are pods."""

    def __init__(self, context: Context) -> None:
        self._client, self._clock = context.client, context.clock
        self._recorder = context.recorder("taint-eviction-controller")
        self._nodes = context.informers.of(core_v1.Node)
        self._pods = context.informers.of(core_v1.Pod)
        self._pods.add_index(ON_NODE, by_node)
        self._due: dict[str, tuple[str, float]] = {}
        """Pod key to its UID and the moment (monotonic seconds) at which it has to go."""
        self.controller = Controller("taint eviction", self.reconcile, workers=8, clock=context.clock)
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
            self._due.pop(change.key, None)
        elif old is None or old.spec.node_name != pod.spec.node_name or old.spec.tolerations != pod.spec.tolerations:
            node = self._nodes.get(pod.spec.node_name or "")
            if change.key in self._due or (node is not None and no_execute(node)):
                self.controller.enqueue(change.key)

    async def reconcile(self, key: str) -> float | None:
        """Evict one pod, now or later, or let it be."""
        pod = self._pods.get(key)
        node = self._nodes.get(pod.spec.node_name or "") if pod is not None else None
        if pod is None or node is None or pod.metadata.deletion_timestamp is not None:
            self._due.pop(key, None)
            return None
        taints = no_execute(node)
        stay = tolerated_for(taints, pod.spec.tolerations) if taints else None
        if stay is None:
            if self._due.pop(key, None) is not None:
                self._recorder.event(pod, "Normal", "TaintManagerEviction", f"Cancelling deletion of Pod {key}")
            return None
        now, uid = self._clock.monotonic(), pod.metadata.uid or ""
        known = self._due.get(key)
        if known is None or known[0] != uid:
            known = self._due[key] = (uid, now + stay)
        elif stay == 0.0:
            known = self._due[key] = (uid, now)
        if known[1] > now:
            return known[1] - now
        await self._evict(pod)
        self._due.pop(key, None)
        return None

    async def _evict(self, pod: core_v1.Pod) -> None:
        key = key_of(pod)
        self._recorder.event(pod, "Normal", "TaintManagerEviction", f"Marking for deletion Pod {key}")
        message = "Taint manager: deleting due to NoExecute taint"
        await disrupt(self._client, self._clock, pod, "DeletionByTaintManager", message)
