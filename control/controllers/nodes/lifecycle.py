"""Node lifecycle: notice nodes that fall silent, say so in their conditions, taint them, and unready their pods.

A silent node is found by a timer per node that every heartbeat pushes on, not by polling. Heartbeats are judged by when
they were seen here, so clocks of nodes do not matter.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import msgspec

from control.controllers import pods as pod_rules
from control.controllers.at_once import for_each
from control.controllers.context import Context
from control.controllers.nodes import health, zones
from control.controllers.nodes.attendance import PULSE, Attendance
from kube.api import coordination_v1, core_v1
from kube.client import STRATEGIC, name_of, namespace_of
from kube.clock import format_time
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change

LEASES = "kube-node-lease"
log = logging.getLogger(__name__)

ON_NODE = "on-node"
"""Name of the pods index by node."""


def by_node(pod: core_v1.Pod) -> tuple[str, ...]:
    """Index function: the node that a pod is bound to."""
    return (pod.spec.node_name,) if pod.spec.node_name else ()


@dataclass(slots=True)
class _Heard:
    """When a node was last heard of, by the monotonic clock here, and from what."""

    at: float
    renewed: str = ""
    heartbeat: str = ""


class NodeLifecycleController:
    """Follows nodes, their leases, and pods."""

    def __init__(self, context: Context, settings: zones.LifecycleSettings = zones.USUAL) -> None:
        self._client, self._clock, self._settings = context.client, context.clock, settings
        self._recorder = context.recorder("node-controller")
        self._heard: dict[str, _Heard] = {}
        self._attendance: Attendance | None = None
        self._queues: dict[str, zones.ZoneQueue] = {}
        self._members = zones.Members(settings)
        self._nodes = context.informers.of(core_v1.Node)
        self._pods = context.informers.of(core_v1.Pod)
        self._pods.add_index(ON_NODE, by_node)
        self._leases = context.informers.filtered(coordination_v1.Lease, LEASES)
        self.controller = Controller("node lifecycle", self.reconcile, workers=4, clock=context.clock)
        self._nodes.subscribe(self._node_changed)
        self._leases.subscribe(self._lease_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._stay_awake(), name="node lifecycle: stay awake")
            group.create_task(self.controller.run(), name="node lifecycle: judge")

    async def _stay_awake(self) -> None:
        self._attendance = Attendance()
        while True:
            self._forgive_absence()
            await self._clock.sleep(PULSE)

    def _forgive_absence(self) -> None:
        """Give the nodes as much longer to be heard of as this process stood still."""
        now = self._clock.monotonic()
        if self._attendance is not None and (lost := self._attendance.lost(now)):
            log.warning("was away for %.0f s; nodes have as much longer to be heard of", lost)
            for heard in self._heard.values():
                heard.at = min(now, heard.at + lost)

    # -- hearing ----------------------------------------------------------------------------------------------------
    def _node_changed(self, change: Change[core_v1.Node]) -> None:
        name, node = change.key, change.new
        if change.type == "DELETED":
            self._heard.pop(name, None)
            self._members.gone(name)
            self._queue(node).remove(name)
            self._recorder.event(
                node, "Normal", "RemovingNode", f"Node {name} event: Removing Node {name} from Controller"
            )
            return
        if change.old is None:
            self._recorder.event(
                node, "Normal", "RegisteredNode", f"Node {name} event: Registered Node {name} in Controller"
            )
        ready = health.condition(node, "Ready")
        zone = zones.zone_of(node.metadata.labels)
        self._members.saw(name, zone, health.readiness(node) == "True")
        if change.old is not None and zones.zone_of(change.old.metadata.labels) != zone:
            self._queue(change.old).remove(name)
        self._hear(name, heartbeat=(ready.last_heartbeat_time or "") if ready else "")
        self.controller.enqueue(name)

    def _lease_changed(self, change: Change[coordination_v1.Lease]) -> None:
        if change.type != "DELETED":
            self._hear(change.new.metadata.name or "", renewed=change.new.spec.renew_time or "")

    def _hear(self, name: str, *, renewed: str = "", heartbeat: str = "") -> None:
        now = self._clock.monotonic()
        heard = self._heard.setdefault(name, _Heard(now))
        if renewed and renewed != heard.renewed:
            heard.at, heard.renewed = now, renewed
        if heartbeat and heartbeat != heard.heartbeat:
            heard.at, heard.heartbeat = now, heartbeat

    # -- reconciling ------------------------------------------------------------------------------------------------
    async def reconcile(self, key: str) -> float | None:
        """Judge one node; return the seconds until it has to be judged again."""
        node = self._nodes.get(key)
        if node is None:
            return None
        was_ready = health.readiness(node)
        self._forgive_absence()
        silent = self._clock.monotonic() - self._heard[key].at
        grace = self._settings.grace if node.status.conditions else self._settings.startup_grace
        if silent >= grace:
            conditions = health.unknown_conditions(node, self._clock.now())
            if conditions is not None:
                status = msgspec.structs.replace(node.status, conditions=conditions)
                node = await self._client.update_status(msgspec.structs.replace(node, status=status))
                if was_ready == "True":
                    self._recorder.event(node, "Normal", "NodeNotReady", f"Node {key} status is now: NodeNotReady")
        wait = await self._taint(
            node
        )  # before the pods: a status that is refused must not keep a dead node without taints
        if health.readiness(node) != "True":
            await self._unready_pods(key)
        again = [grace if silent >= grace else grace - silent]
        return min([*again, wait] if wait else again)

    def _queue(self, node: core_v1.Node) -> zones.ZoneQueue:
        return self._queues.setdefault(zones.zone_of(node.metadata.labels), zones.ZoneQueue())

    async def _taint(self, node: core_v1.Node) -> float:
        """Write the taints that the node's state calls for; return the seconds until a NoExecute one may follow."""
        name, queue, wait = name_of(node), self._queue(node), 0.0
        wanted = health.no_execute_key(node)
        present = {t.key for t in node.spec.taints if t.effect == "NoExecute"}
        if wanted is None:
            queue.remove(name)
        elif not present & {health.NOT_READY, health.UNREACHABLE}:
            queue.add(name)
            wait = queue.take(name, self._members.rate(zones.zone_of(node.metadata.labels)), self._clock.monotonic())
            if wait:
                wanted = None
        else:
            queue.remove(name)
        taints = health.taints(node, wanted, self._clock.now())
        if taints is not None:
            patch = {
                "metadata": {"resourceVersion": node.metadata.resource_version},
                "spec": {"taints": msgspec.to_builtins(taints) or None},
            }
            await self._client.patch(core_v1.Node, name, "", patch)
        return wait

    async def _unready_pods(self, node: str) -> None:
        """A node that is not ready serves nothing: its pods leave their Services."""
        now = format_time(self._clock.now())
        conditions = ((pod, pod_rules.condition(pod, "Ready")) for pod in self._pods.by_index(ON_NODE, node))
        ready = [pod for pod, condition in conditions if condition is not None and condition.status == "True"]
        failure = await for_each(ready, lambda pod: self._unready(pod, now))
        if failure is not None:
            raise failure

    async def _unready(self, pod: core_v1.Pod, now: str) -> None:
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
            if not error.not_found and not error.conflict:
                raise
        self._recorder.event(pod, "Warning", "NodeNotReady", "Node is not ready")
