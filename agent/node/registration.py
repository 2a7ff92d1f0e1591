"""Registers the Node object, and reports the node's status when something changes.

The status is compared with the API's every 10 s (the node controller may have overwritten it) and sent only where it differs,
or every 5 minutes, so a quiet node costs next to nothing. The lease (lease.py) shows that the agent is alive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from agent.config import AgentConfig
from agent.devices.manager import DeviceManager
from agent.node import condition_events, extended_resources
from agent.node import status as node_status
from agent.node.machine import Machine
from agent.node.runtime_status import RuntimeStatus
from agent.node.state import NodeState
from agent.node.status import RuntimeFacts
from kube.api import core_v1, meta_v1
from kube.client import STRATEGIC, Client
from kube.clock import Clock, format_time
from kube.errors import StatusError
from kube.events import NORMAL, EventRecorder
from kube.volume_binding import LOCAL_PATH_FOLDER

log = logging.getLogger(__name__)

UNREADY_SECONDS = 0.25
"""Interval in seconds at which a node that is not ready yet reads its runtime's status: the first pods wait for it."""
UNREADY_TRIES = 240
FIRST_RETRY, LAST_RETRY = 0.1, 7.0
_ATTACH = "volumes.kubernetes.io/controller-managed-attach-detach"


class NodeRegistration:
    """This machine as a node of the cluster."""

    def __init__(
        self,
        config: AgentConfig,
        client: Client,
        heartbeat: Client,
        recorder: EventRecorder,
        state: NodeState,
        machine: Machine,
        runtime: RuntimeStatus,
        *,
        devices: DeviceManager,
        volumes_in_use: Callable[[], list[str]],
        relist_problem: Callable[[], str],
        clock: Clock,
    ) -> None:
        """Make requests for the status by `heartbeat`.

        `relist_problem` returns why the runtime's pods are not known, "" where they are.
        """
        self._config, self._client, self._heartbeat, self._recorder = config, client, heartbeat, recorder
        self._state, self._clock, self.machine, self._runtime = state, clock, machine, runtime
        self._devices, self._volumes_in_use, self._relist_problem = devices, volumes_in_use, relist_problem
        self._forget_extended = devices.without_checkpoint
        """The extended resources of the existing object are of a node that was here before."""
        self._node: core_v1.Node | None = None
        self._reported = float("-inf")
        self._new = False
        self.ready = asyncio.Event()
        """Set once the node was reported to be Ready."""
        self.usable = asyncio.Event()
        """Set once the node was reported to be Ready, or to lack only a pod network: pods of the host network run then."""
        self.registered = asyncio.Event()

    def uid(self) -> str:
        """Return the UID of the node's object, "" before it is registered."""
        return (self._node.metadata.uid or "") if self._node is not None else ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The node's own addresses."""
        return self._state.host_ips

    # -- registration -------------------------------------------------------------------------------------------------
    async def register(self) -> None:
        """Make the node object, or take over the one that is there; tries until the API server answers."""
        delay = FIRST_RETRY
        while True:
            try:
                await self._register()
                self.registered.set()
                return
            except StatusError as error:
                log.warning("registering node %s: %s", self._config.node_name, error)
            await self._clock.sleep(delay)
            delay = min(delay * 2, LAST_RETRY)

    async def _register(self) -> None:
        name, config = self._config.node_name, self._config
        await self._runtime.update()
        if config.register_node:
            wanted = core_v1.Node(
                metadata=meta_v1.ObjectMeta(
                    name=name, labels=node_status.labels(self.machine, config), annotations=self._annotations()
                ),
                spec=core_v1.NodeSpec(
                    provider_id=config.provider_id or None,
                    taints=[core_v1.Taint(key=t.key, value=t.value or None, effect=t.effect) for t in config.taints],
                ),
                status=self._status(core_v1.NodeStatus()),
            )
            try:
                self._node = await self._client.create(wanted)
                self._reported, self._new, self._forget_extended = self._clock.monotonic(), True, False
                self._update_state(self._node)
                log.info("registered node %s", name)
                return
            except StatusError as error:
                if not error.already_exists:
                    raise
        self._node = await self._client.get(core_v1.Node, name)
        metadata, patch = self._node.metadata, dict[str, dict[str, str]]()
        for part, wanted_there, there in (
            ("labels", node_status.labels(self.machine, config), metadata.labels),
            ("annotations", self._annotations(), metadata.annotations),
        ):
            if missing := {key: text for key, text in wanted_there.items() if there.get(key) != text}:
                patch[part] = missing
        if patch:
            self._node = await self._client.patch(core_v1.Node, name, "", {"metadata": patch})
        self._update_state(self._node)

    async def refresh(self) -> None:
        """Read the object's labels and taints now. Raise StatusError."""
        self._update_state(await self._client.get(core_v1.Node, self._config.node_name))

    def _update_state(self, node: core_v1.Node) -> None:
        """Keep the labels and taints of the Node object for admission."""
        self._state.labels, self._state.taints = node.metadata.labels, node.spec.taints

    def _annotations(self) -> dict[str, str]:
        return {_ATTACH: "true", LOCAL_PATH_FOLDER: str(self._config.local_path_dir)}

    def _status(self, old: core_v1.NodeStatus) -> core_v1.NodeStatus:
        now = format_time(self._clock.now())
        status = node_status.node_status(
            self.machine, self._config, self._unready(), self._state.host_ips, old, now, self._state.pressures()
        )
        status.volumes_in_use = self._volumes_in_use()
        extended_resources.add(status, old, self._devices.capacity(), forget=self._forget_extended)
        self._state.allocatable = status.allocatable
        return status

    def devices_changed(self) -> None:
        """Count the node's devices now, and have its status reported."""
        found = {name: str(allocatable) for name, (_, allocatable) in self._devices.capacity().items()}
        self._state.allocatable = {**self._state.allocatable, **found}
        self._state.request_report()

    def _unready(self) -> RuntimeFacts:
        """Return the runtime's facts, not ready also where the whole node is not."""
        facts, ending = self._runtime.facts, "node is shutting down" if self._state.shutting_down else ""
        return replace(facts, unready=", ".join(filter(None, (facts.unready, self._relist_problem(), ending))))

    # -- the status ---------------------------------------------------------------------------------------------------
    async def report_forever(self) -> None:
        """Keep the node's status current until cancelled."""
        assert self._node is not None, "register first"
        self._event("Starting", "Starting kubelet.")
        if self._new:
            self._record_transitions(core_v1.NodeStatus(), self._node.status)
            self._event("NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
        early = 0
        while True:
            await self._report()
            unready = not self.ready.is_set() and early < UNREADY_TRIES
            early += 1
            seconds = UNREADY_SECONDS if unready else self._config.status_update_period
            try:
                async with asyncio.timeout(seconds):
                    await self._state.report_requested.wait()
            except TimeoutError:
                pass
            self._state.report_requested.clear()

    async def _report(self) -> None:
        assert self._node is not None, "register first"
        await self._runtime.update()
        try:
            # Others write to it, too: the node controller gives up on a node that was frozen or cut off for a while.
            now_there = await self._heartbeat.get(core_v1.Node, self._config.node_name)
        except StatusError as error:
            log.warning("node %s: %s", self._config.node_name, error)
            return
        if bool(now_there.spec.unschedulable) != bool(self._node.spec.unschedulable):
            reason = "NodeNotSchedulable" if now_there.spec.unschedulable else "NodeSchedulable"
            self._event(reason, f"Node {self._config.node_name} status is now: {reason}")
        self._node = now_there
        self._update_state(now_there)
        old = self._node.status
        new = self._status(old)
        now = self._clock.monotonic()
        if not node_status.changed(old, new) and now - self._reported < self._config.status_report_period:
            self._forget_extended = False
            self._set_ready(old)
            return
        try:
            body = {"status": node_status.patch(old, new)}
            self._node = await self._heartbeat.patch(
                core_v1.Node, self._config.node_name, "", body, type=STRATEGIC, subresource="status"
            )
        except StatusError as error:
            log.warning("status of node %s: %s", self._config.node_name, error)
            # A Node that was deleted stays deleted until the agent restarts, as with upstream's.
            return
        self._reported, self._forget_extended = now, False
        self._record_transitions(old, new)
        self._set_ready(new)

    def _set_ready(self, status: core_v1.NodeStatus) -> None:
        ready = next((c for c in status.conditions if c.type == "Ready"), None)
        if ready is None:
            return
        if ready.status == "True":
            self.ready.set()
        if ready.status == "True" or ready.message == self._state.network_problem:
            self.usable.set()

    def _record_transitions(self, old: core_v1.NodeStatus, new: core_v1.NodeStatus) -> None:
        for reason in condition_events.reasons(old.conditions, new.conditions):
            self._event(reason, f"Node {self._config.node_name} status is now: {reason}")

    def _event(self, reason: str, message: str) -> None:
        # Upstream's node events carry the node's name as its UID.
        name = self._config.node_name
        about = core_v1.ObjectReference(kind="Node", name=name, uid=name)
        self._recorder.event(about, NORMAL, reason, message)
