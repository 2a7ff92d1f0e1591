"""Pod garbage collection: pods that no other component removes.

Four kinds: finished pods beyond a number (oldest first), pods bound to a node that is gone (after a quarantine and a live
look, since our copy may be behind), deleted pods that were never scheduled, and deleted pods of a node that is out of
service. Upstream: pkg/controller/podgc.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from control.controllers import metrics
from control.controllers import pods as pod_rules
from control.controllers.context import Context
from kube import disruption_target
from kube.api import core_v1
from kube.client import STRATEGIC
from kube.clock import format_time
from kube.errors import StatusError
from kube.object_names import key_of, name_of, namespace_of

log = logging.getLogger(__name__)

PERIOD_SECONDS, QUARANTINE_SECONDS = 20.0, 40.0
TERMINATED_THRESHOLD = 12500
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def surplus_terminated(pods: Sequence[core_v1.Pod], threshold: int) -> list[core_v1.Pod]:
    """Return the finished pods above the threshold, evicted ones first, then the oldest."""
    finished = [pod for pod in pods if pod_rules.is_terminal(pod)]
    finished.sort(key=lambda p: (p.status.reason != "Evicted", p.metadata.creation_timestamp or "", key_of(p)))
    return finished[: max(0, len(finished) - threshold)] if threshold > 0 else []


def out_of_service(node: core_v1.Node | None) -> bool:
    """Return whether a node that is not ready has the out-of-service taint."""
    if node is None or any(c.type == "Ready" and c.status == "True" for c in node.status.conditions):
        return False
    return any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


class PodGC:
    """Checks all pods 20 seconds after a change of pods or nodes, and as long as pods remain that may have to be removed."""

    def __init__(self, context: Context, threshold: int = TERMINATED_THRESHOLD) -> None:
        self._client, self._clock, self._threshold = context.client, context.clock, threshold
        self._pods = context.informers.of(core_v1.Pod)
        self._nodes = context.informers.of(core_v1.Node)
        self._missing: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._pods.subscribe(lambda change: self._changed.set())
        self._nodes.subscribe(lambda change: self._changed.set())

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._changed.clear()
            await self.collect()
            await self._changed.wait()
            await self._clock.sleep(PERIOD_SECONDS)

    async def collect(self) -> None:
        """Remove what there is to remove now."""
        pods = self._pods.list()
        for pod in surplus_terminated(pods, self._threshold):
            await self._remove(pod, "terminated")
        gone = await self._vanished_nodes(pods)
        for pod in pods:
            if pod.spec.node_name in gone:
                await self._remove(pod, "orphaned", "PodGC: node no longer exists")
            elif pod.metadata.deletion_timestamp is not None:
                if not pod.spec.node_name:
                    await self._remove(pod, "unscheduled")
                elif out_of_service(self._nodes.get(pod.spec.node_name)):
                    await self._remove(pod, "out-of-service")

    async def _vanished_nodes(self, pods: Sequence[core_v1.Pod]) -> set[str]:
        named = {pod.spec.node_name for pod in pods if pod.spec.node_name}
        missing = {name for name in named if name and self._nodes.get(name) is None}
        now = self._clock.monotonic()
        self._missing = {name: self._missing.get(name, now) for name in missing}
        if missing:
            self._changed.set()  # after the quarantine
        return {
            name
            for name, since in self._missing.items()
            if now - since >= QUARANTINE_SECONDS and not await self._exists(name)
        }

    async def _exists(self, node: str) -> bool:
        try:
            await self._client.get(core_v1.Node, node)
        except StatusError as error:
            return not error.not_found
        return True

    async def _remove(self, pod: core_v1.Pod, reason: str, why: str = "") -> None:
        """Mark a pod failed, where it was cut off, and delete it without grace; `reason` is a label of metrics."""
        name, namespace = name_of(pod), namespace_of(pod)
        status: dict[str, object] = {}
        if not pod_rules.is_terminal(pod):
            status["phase"] = "Failed"
            if why:
                now = format_time(self._clock.now())
                status["conditions"] = [
                    disruption_target.condition("DeletionByPodGC", why, now, pod.metadata.generation)
                ]
        try:
            if status:
                patch = {"metadata": {"uid": pod.metadata.uid}, "status": status}
                await self._client.patch(core_v1.Pod, name, namespace, patch, type=STRATEGIC, subresource="status")
            await self._client.delete(core_v1.Pod, name, namespace, uid=pod.metadata.uid or "", grace_period_seconds=0)
            metrics.PODS_REMOVED.add(namespace, reason)
        except StatusError as error:
            if not error.not_found and not error.replaced:
                metrics.REMOVALS_FAILED.add(namespace, reason)
                log.warning("removing pod %s: %s", key_of(pod), error)
                self._changed.set()
