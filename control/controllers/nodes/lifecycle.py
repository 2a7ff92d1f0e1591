"""Node lifecycle: sets conditions and taints of nodes that stop sending heartbeats, and marks their pods as not ready.

Each node has a timer, which every heartbeat postpones; there is no polling. The time since a heartbeat counts from when it
was received here, so clocks of nodes do not matter.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from control.controllers import pods as pod_rules
from control.controllers.concurrent_requests import for_each
from control.controllers.context import Context
from control.controllers.nodes import health, metrics, zones
from control.controllers.nodes.suspension import CHECK_SECONDS, SuspensionDetector
from control.interfaces.local_nodes import LocalNodes
from kube import cancellation, duration
from kube.api import coordination_v1, core_v1
from kube.client import STRATEGIC
from kube.clock import format_time
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change
from kube.object_names import name_of, namespace_of

LEASES = "kube-node-lease"
log = logging.getLogger(__name__)

ON_NODE = "on-node"
"""Name of the pods index by node."""


def by_node(pod: core_v1.Pod) -> tuple[str, ...]:
    """Index function: the node that a pod is bound to."""
    return (pod.spec.node_name,) if pod.spec.node_name else ()


class _Heartbeats(msgspec.Struct):
    """Newest heartbeats of a node, and the monotonic time at which the last of them was received here."""

    received_at: float
    renew_time: str = ""
    """Of its Lease."""
    heartbeat_time: str = ""
    """Of its Ready condition."""


class NodeLifecycleController:
    """Watches nodes, their leases, and pods."""

    def __init__(
        self,
        context: Context,
        settings: zones.LifecycleSettings = zones.DEFAULTS,
        local: LocalNodes | None = None,
    ) -> None:
        self._client, self._clock, self._settings = context.client, context.clock, settings
        self._recorder = context.recorder("node-controller")
        self._heartbeats: dict[str, _Heartbeats] = {}
        self._suspension: SuspensionDetector | None = None
        self._queues: dict[str, zones.ZoneQueue] = {}
        self._zone_states = zones.ZoneStates(settings)
        self._full_disruption = False
        """True while no node is ready."""
        self._nodes = context.informers.of(core_v1.Node)
        self._pods = context.informers.of(core_v1.Pod)
        self._pods.add_index(ON_NODE, by_node)
        self._leases = context.informers.filtered(coordination_v1.Lease, LEASES)
        self.controller = Controller(
            "node lifecycle", self.reconcile, workers=4, queue="node_lifecycle_controller", clock=context.clock
        )
        self._nodes.subscribe(self._node_changed)
        self._leases.subscribe(self._lease_changed)
        self._local = local or LocalNodes()
        self._local.on_lost(self._local_node_lost)

    async def run(self) -> None:
        """Work until cancelled."""
        with metrics.zones_shown(self._zone_states):
            async with asyncio.TaskGroup() as group:
                cancellation.start(group, self._detect_suspension, "node lifecycle: detect suspension")
                cancellation.start(group, self.controller.run, "node lifecycle: reconcile")

    async def _detect_suspension(self) -> None:
        if self._clock.steady:
            return
        self._suspension = SuspensionDetector()
        while True:
            self._extend_deadlines()
            await self._clock.sleep(CHECK_SECONDS)

    def _extend_deadlines(self) -> None:
        """Extend the grace periods of the nodes by the time for which this process was suspended."""
        now = self._clock.monotonic()
        if self._suspension is not None and (suspended := self._suspension.suspended(now)):
            log.warning(
                "this process was suspended for %.0f s: nodes have as much more time for their heartbeats", suspended
            )
            for heartbeats in self._heartbeats.values():
                heartbeats.received_at = min(now, heartbeats.received_at + suspended)

    # -- heartbeats -------------------------------------------------------------------------------------------------
    def _node_changed(self, change: Change[core_v1.Node]) -> None:
        name, node = change.key, change.new
        if change.type == "DELETED":
            self._heartbeats.pop(name, None)
            self._zone_states.remove_node(name)
            self._queue(node).remove(name)
            self.controller.enqueue(name)  # for the other nodes of the zone
            self._recorder.event(
                node, "Normal", "RemovingNode", f"Node {name} event: Removing Node {name} from Controller"
            )
            return
        if change.old is None:
            self._recorder.event(
                node, "Normal", "RegisteredNode", f"Node {name} event: Registered Node {name} in Controller"
            )
        ready = health.condition(node, "Ready")
        self._update_zone(node)
        if change.old is not None and self._queue(change.old) is not self._queue(node):
            self._queue(change.old).remove(name)
        self._record_heartbeat(name, heartbeat_time=(ready.last_heartbeat_time or "") if ready else "")
        self.controller.enqueue(name)

    def _update_zone(self, node: core_v1.Node) -> None:
        labels = node.metadata.labels
        if zones.EXCLUDED in labels:
            self._zone_states.remove_node(name_of(node))
        else:
            self._zone_states.set_node(name_of(node), zones.zone_of(labels), ready=health.readiness(node) == "True")

    def _lease_changed(self, change: Change[coordination_v1.Lease]) -> None:
        if change.type != "DELETED":
            self._record_heartbeat(change.new.metadata.name or "", renew_time=change.new.spec.renew_time or "")

    def _record_heartbeat(self, name: str, *, renew_time: str = "", heartbeat_time: str = "") -> None:
        now = self._clock.monotonic()
        last = self._heartbeats.setdefault(name, _Heartbeats(now))
        if renew_time and renew_time != last.renew_time:
            last.received_at, last.renew_time = now, renew_time
        if heartbeat_time and heartbeat_time != last.heartbeat_time:
            last.received_at, last.heartbeat_time = now, heartbeat_time

    def _local_node_lost(self, name: str) -> None:
        if name in self._heartbeats:
            self._heartbeats[name].received_at = self._clock.monotonic()
            self.controller.enqueue(name)

    # -- reconciling ------------------------------------------------------------------------------------------------
    async def reconcile(self, key: str) -> None:
        """Set the conditions and taints of one node, and enqueue it for the time of its next check."""
        self._handle_disruption()
        node = self._nodes.get(key)
        if node is None:
            return
        was_ready = health.readiness(node)
        self._extend_deadlines()
        alive = key in self._local
        elapsed = 0.0 if alive else self._clock.monotonic() - self._heartbeats[key].received_at
        reported = health.condition(node, "Ready") is not None
        grace = self._settings.monitor_grace_period if reported else self._settings.startup_grace_period
        if elapsed >= grace:
            conditions = health.unknown_conditions(node, self._clock.now())
            if conditions is not None:
                status, known = msgspec.structs.replace(node.status, conditions=conditions), node
                node = await self._client.update_status(msgspec.structs.replace(node, status=status))
                if (
                    self._nodes.get(key) is known
                ):  # the informer does not have the update yet, and this may be the last node that was ready
                    self._update_zone(node)
                    self._handle_disruption()
                if was_ready == "True":
                    self._recorder.event(node, "Normal", "NodeNotReady", f"Node {key} status is now: NodeNotReady")
        wait = await self._taint(node)
        next_check = grace if elapsed >= grace else grace - elapsed
        # Before the pods: the taints must not depend on updates of pod statuses, which may be rejected.
        if wait or not alive:
            self.controller.enqueue_after(key, min(next_check, wait) if wait else next_check)
        ready = health.condition(node, "Ready")
        if ready is not None and ready.status != "True":
            await self._mark_pods_not_ready(key)

    def _handle_disruption(self) -> None:
        """Adapt the rate limits to the zones' states, and enter or leave full disruption (upstream: handleDisruption).

        While no node is ready, `_taint` removes the taints that evict pods. When the first node is ready again, the grace
        periods of the others restart, and the first of them is tainted after a delay.
        """
        changed = self._zone_states.take_changed()
        if not changed:
            return
        now = self._clock.monotonic()
        if self._full_disruption != self._zone_states.full_disruption:
            self._full_disruption = self._zone_states.full_disruption
            changed.update(self._queues)
            if self._full_disruption:
                log.info("no node is ready: evictions from nodes that are not ready stop")
            else:
                log.info("some nodes are ready again: evictions from nodes that are not ready resume")
                for heartbeats in self._heartbeats.values():
                    heartbeats.received_at = now
            for name in self._heartbeats:
                self.controller.enqueue(name)
        for zone in changed:
            queue = self._queue_of(zone)
            if queue.set_rate(self._zone_states.eviction_rate(zone), now):
                for name in queue:
                    self.controller.enqueue(name)

    def _queue(self, node: core_v1.Node) -> zones.ZoneQueue:
        return self._queue_of(zones.zone_of(node.metadata.labels))

    def _queue_of(self, zone: str) -> zones.ZoneQueue:
        queue = self._queues.get(zone)
        if queue is None:
            queue = self._queues[zone] = zones.ZoneQueue(self._settings.eviction_rate)
        return queue

    async def _taint(self, node: core_v1.Node) -> float:
        """Write the taints for the node's state; return the seconds until a NoExecute taint may be added, 0 without delay."""
        name, queue, wait = name_of(node), self._queue(node), 0.0
        wanted = health.no_execute_key(node)
        present = {t.key for t in node.spec.taints if t.effect == "NoExecute"}
        if wanted is None:
            queue.remove(name)
        elif self._full_disruption:
            queue.add(name)
            wanted = None
        elif not present & {health.NOT_READY, health.UNREACHABLE}:
            queue.add(name)
            wait = queue.try_take(name, self._clock.monotonic())
            if wait:
                wanted = None
        else:
            queue.remove(name)
        taints = health.desired_taints(node, wanted, self._clock.now())
        if taints is not None:
            patch = {
                "metadata": {"resourceVersion": node.metadata.resource_version},
                "spec": {"taints": msgspec.to_builtins(taints) or None},
            }
            await self._client.patch(core_v1.Node, name, "", patch)
            self._record_taints(node, taints)
            if wanted is not None and wanted not in present:
                metrics.NODE_EVICTIONS.add(zones.zone_of(node.metadata.labels))
        return wait

    def _record_taints(self, node: core_v1.Node, taints: Sequence[core_v1.Taint]) -> None:
        """Record the node's taints in the journal, with the age of its last heartbeat."""
        keys = ", ".join(f"{taint.key}:{taint.effect}" for taint in taints) or "none"
        received_at = self._heartbeats[name_of(node)].received_at
        age = duration.render(round(self._clock.monotonic() - received_at))
        text = f"set the taints: {keys} (Ready is {health.readiness(node)}, last heartbeat {age} ago)"
        self._recorder.decisions.record(node, text)

    async def _mark_pods_not_ready(self, node: str) -> None:
        """Set the Ready conditions of a node's pods to False, which removes them from the endpoints of their Services."""
        now = format_time(self._clock.now())
        conditions = ((pod, pod_rules.condition(pod, "Ready")) for pod in self._pods.by_index(ON_NODE, node))
        ready = [pod for pod, condition in conditions if condition is not None and condition.status == "True"]
        failure = await for_each(ready, lambda pod: self._mark_pod_not_ready(pod, now))
        if failure is not None:
            raise failure

    async def _mark_pod_not_ready(self, pod: core_v1.Pod, now: str) -> None:
        ready = {
            "type": "Ready",
            "status": "False",
            "lastTransitionTime": now,
            "observedGeneration": pod.metadata.generation,
        }
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [ready]}}
        try:
            await self._client.patch(
                core_v1.Pod, name_of(pod), namespace_of(pod), patch, type=STRATEGIC, subresource="status"
            )
        except StatusError as error:
            if not error.not_found and not error.replaced:
                raise
        self._recorder.event(pod, "Warning", "NodeNotReady", "Node is not ready")
