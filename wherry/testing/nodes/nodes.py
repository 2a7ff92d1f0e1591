"""The simulated nodes of a cluster: they register, renew their leases, and run the pods that are bound to them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from agent.status.patch import difference
from agent.status.phase import ENDED_PHASES
from control.interfaces.local_nodes import LocalNodes
from kube.api import coordination_v1, core_v1
from kube.client import STRATEGIC, Client
from kube.clock import Clock, format_micro_time
from kube.controller import Controller
from kube.errors import StatusError
from kube.events import EventRecorder
from kube.informer import Change, Informer
from kube.loops import Loops
from wherry.testing.errors import ClusterError
from wherry.testing.nodes.node import PRESSURES, SimulatedNode
from wherry.testing.nodes.pod import SimulatedPod, Stepped
from wherry.testing.nodes.scripts import Scripts

log = logging.getLogger(__name__)

LEASES = "kube-node-lease"
LEASE_SECONDS, RENEW_SECONDS = 40, 10.0
SCHEDULABLE_SECONDS = 30.0
"""Time in which a node must get a range of addresses and lose its first taints."""
STATUS_SECONDS = 300.0
"""Time after which a node reports a status that has not changed, as upstream."""


class SimulatedNodes:
    """All simulated nodes, on one informer of pods. `client_of` returns a client that acts as a node."""

    def __init__(
        self,
        client: Client,
        client_of: Callable[[str], Client],
        clock: Clock,
        scripts: Scripts,
        local: LocalNodes,
    ) -> None:
        self._local = local
        self._client_of, self._clock, self._scripts = client_of, clock, scripts
        self._nodes: dict[str, SimulatedNode] = {}
        self._clients: dict[str, Client] = {}
        self._recorders: dict[str, EventRecorder] = {}
        self._sending: dict[str, asyncio.Task[None]] = {}
        """The recorders' tasks."""
        self._pods: dict[str, SimulatedPod] = {}
        """By namespace/name."""
        self.informer: Informer[core_v1.Pod] = Informer(client, core_v1.Pod, clock=clock)
        self._objects: Informer[core_v1.Node] = Informer(client, core_v1.Node, clock=clock)
        self._controller = Controller("simulated nodes", self._reconcile, workers=4, clock=clock)
        self._loops = Loops(clock)
        self._reported_at: dict[str, float] = {}
        self._group: asyncio.TaskGroup | None = None
        self._number = 0
        self.informer.subscribe(self._pod_changed)
        self._objects.subscribe(self._node_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for name in self._recorders:
                self._sending[name] = group.create_task(self._recorders[name].run())
            group.create_task(self._loops.run("pods of simulated nodes", self.informer.run))
            group.create_task(self._loops.run("simulated nodes", self._objects.run))
            group.create_task(self._controller.run())
            group.create_task(self._loops.run("leases of simulated nodes", self._renew_leases))

    # -- nodes ----------------------------------------------------------------------------------------------------
    async def add(
        self, name: str = "", *, labels: dict[str, str] | None = None, capacity: dict[str, str] | None = None
    ) -> SimulatedNode:
        """Register a node and wait until it is ready."""
        self._number += 1
        name = name or next(each for n in itertools.count(1) if (each := f"node-{n}") not in self._recorders)
        if name in self._recorders:
            raise ClusterError(f"there is a node {name} already")
        node = SimulatedNode(name, self._number, labels=dict(labels or {}))
        node.capacity.update(capacity or {})
        client = self._clients[name] = self._client_of(name)
        recorder = self._recorders[name] = EventRecorder(client, "kubelet", clock=self._clock, host=name)
        if self._group is not None:
            self._sending[name] = self._group.create_task(recorder.run())
        await client.create(node.object())
        self._nodes[name] = node
        self._local.add(name)
        await self._report(node)
        await self._renew(node)
        try:
            async with asyncio.timeout(SCHEDULABLE_SECONDS):
                await node.schedulable.wait()
        except TimeoutError:
            raise ClusterError(f"the node {name} has no range or no end of its taints after 30 s") from None
        return node

    def get(self, name: str) -> SimulatedNode:
        """Return a node by its name. Raise ClusterError if there is none."""
        if name not in self._nodes:
            raise ClusterError(f"no node {name!r}; there are {', '.join(self._nodes) or 'none'}")
        return self._nodes[name]

    def find(self, name: str) -> SimulatedNode | None:
        """Return a node by its name, None if there is no such simulated node."""
        return self._nodes.get(name)

    def names(self) -> list[str]:
        return list(self._nodes)

    def fail(self, name: str) -> None:
        """Take the power from a node: its containers end, and nothing is reported."""
        node = self.get(name)
        node.state = "off"
        self._local.remove(name)
        for pod in self.pods_on(name):
            pod.lose_power()
        node.disconnect()

    def partition(self, name: str) -> None:
        """Cut a node off from the API server: its containers run on, and nothing is reported."""
        node = self.get(name)
        node.state = "partitioned"
        self._local.remove(name)
        node.disconnect()

    async def recover(self, name: str) -> None:
        """Undo `fail` or `partition`."""
        node = self.get(name)
        node.state = "running"
        self._local.add(name)
        await self._report(node)
        await self._renew(node)
        for key in [key for key, pod in self._pods.items() if pod.pod.spec.node_name == name]:
            self._controller.enqueue(key)  # also those that were deleted meanwhile
        self._enqueue_pods(name)

    async def restore(self, names: Collection[str]) -> None:
        """Forget all other nodes, and let these run without pressure: their objects are restored by the caller."""
        for name in [name for name in self._nodes if name not in names]:
            self._local.remove(name)
            self._nodes[name].disconnect()
            self._sending.pop(name).cancel()
            del self._nodes[name], self._clients[name], self._recorders[name]
            self._reported_at.pop(name, None)
        for name, node in self._nodes.items():
            if node.state != "running" or node.pressures:
                node.pressures.clear()
                await self.recover(name)

    async def set_pressure(self, name: str, pressure: str, *, on: bool = True) -> None:
        """Report memory, disk or pid pressure, or its end."""
        if pressure not in PRESSURES:
            raise ClusterError(f"no pressure {pressure!r}; there are {', '.join(PRESSURES)}")
        node = self.get(name)
        node.pressures.add(pressure) if on else node.pressures.discard(pressure)
        await self._report(node)

    async def _report(self, node: SimulatedNode) -> None:
        self._reported_at[node.name] = self._clock.monotonic()
        status = {"status": node.status(self._clock)}
        await self._clients[node.name].patch(core_v1.Node, node.name, "", status, type=STRATEGIC, subresource="status")

    async def _renew_leases(self) -> None:
        while True:
            await self._clock.sleep_deferrable(RENEW_SECONDS)
            for node in list(self._nodes.values()):
                if node.state == "running":
                    with contextlib.suppress(StatusError):
                        await self._renew(node)
                        if self._clock.monotonic() - self._reported_at.get(node.name, 0.0) >= STATUS_SECONDS:
                            await self._report(node)

    async def _renew(self, node: SimulatedNode) -> None:
        client, now = self._clients[node.name], format_micro_time(self._clock.now())
        spec = {"holderIdentity": node.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}
        try:
            await client.patch(coordination_v1.Lease, node.name, LEASES, {"spec": spec})
        except StatusError as error:
            if not error.not_found:
                raise
            body = {"metadata": {"name": node.name, "namespace": LEASES}, "spec": spec}
            await client.create(msgspec.convert(body, coordination_v1.Lease))

    def _node_changed(self, change: Change[core_v1.Node]) -> None:
        node = self._nodes.get(change.new.metadata.name or "")
        if node is None or not change.new.spec.pod_cidr:
            return
        if not change.new.spec.taints:
            node.schedulable.set()
        if node.range:
            return
        node.range = change.new.spec.pod_cidr
        self._enqueue_pods(node.name)

    def _enqueue_pods(self, name: str) -> None:
        """Step the pods that are bound to a node."""
        for pod in self.informer.list():
            if pod.spec.node_name == name:
                self._controller.enqueue(f"{pod.metadata.namespace}/{pod.metadata.name}")

    # -- pods -----------------------------------------------------------------------------------------------------
    def pod(self, namespace: str, name: str) -> SimulatedPod:
        """Return a pod that a node runs. Raise ClusterError if there is none."""
        found = self.find_pod(namespace, name)
        if found is None:
            raise ClusterError(f"no node runs a pod {namespace}/{name}")
        return found

    def find_pod(self, namespace: str, name: str) -> SimulatedPod | None:
        """Return a pod that a node runs, None if there is none."""
        return self._pods.get(f"{namespace}/{name}")

    def woken(self, namespace: str, name: str) -> None:
        """Step a pod: something was done to it."""
        self._controller.enqueue(f"{namespace}/{name}")

    def pods_on(self, name: str) -> list[SimulatedPod]:
        """Return the pods that a node runs."""
        return [pod for pod in self._pods.values() if pod.pod.spec.node_name == name]

    def _pod_changed(self, change: Change[core_v1.Pod]) -> None:
        if change.new.spec.node_name in self._nodes:
            self._controller.enqueue(change.key)

    async def _reconcile(self, key: str) -> float | None:
        pod = self.informer.get(key)
        if pod is None or pod.spec.node_name not in self._nodes:
            self._forget(key)
            return None
        node = self._nodes[pod.spec.node_name]
        if node.state != "running" or not node.range:
            return None
        running = self._pods.get(key)
        if running is None or running.uid != pod.metadata.uid:
            if pod.status.phase in ENDED_PHASES and pod.metadata.deletion_timestamp is None:
                return None
            self._forget(key)
            running = self._pods[key] = self._started(pod, node)
        running.pod = pod
        stepped = running.step()
        await self._send(node, running, stepped)
        return None if stepped.wake_at is None else max(0.0, stepped.wake_at - self._clock.now().timestamp())

    def _started(self, pod: core_v1.Pod, node: SimulatedNode) -> SimulatedPod:
        return SimulatedPod(
            pod, self._scripts, self._clock, addresses=node.pod_addresses, host_addresses=(node.address,)
        )

    async def _send(self, node: SimulatedNode, running: SimulatedPod, stepped: Stepped) -> None:
        client, pod = self._clients[node.name], running.pod
        name, namespace = pod.metadata.name or "", pod.metadata.namespace or ""
        for event in stepped.events:
            path = f"spec.containers{{{event.container}}}" if event.container else ""
            self._recorders[node.name].event(pod, event.type, event.reason, event.message, field_path=path)
        patch = difference(pod.status, stepped.status)
        if patch is not None:
            body: dict[str, Any] = {"metadata": {"uid": running.uid}, "status": patch}
            try:
                await client.patch(core_v1.Pod, name, namespace, body, type=STRATEGIC, subresource="status")
            except StatusError as error:
                if not error.not_found:
                    raise
                return
        if stepped.delete:
            with contextlib.suppress(StatusError):
                await client.delete(core_v1.Pod, name, namespace, grace_period_seconds=0, uid=running.uid)
            self._forget(f"{namespace}/{name}")

    def _forget(self, key: str) -> None:
        """Drop a pod that is gone; who still reads a log of it is at its end."""
        if (gone := self._pods.pop(key, None)) is not None:
            gone.lose_power()
