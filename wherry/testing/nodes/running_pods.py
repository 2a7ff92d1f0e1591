"""The pods that are bound to simulated nodes: each is stepped when something has changed; its status and events are sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agent.podspec.environment import References
from agent.status.patch import difference
from agent.status.phase import ENDED_PHASES
from kube.api import core_v1
from kube.client import STRATEGIC, Client
from kube.clock import Clock
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change, Informer
from kube.loops import Loops
from wherry.testing.errors import ClusterError
from wherry.testing.nodes import saved_pod
from wherry.testing.nodes.missing_objects import MissingObjects
from wherry.testing.nodes.mounts import Mounts
from wherry.testing.nodes.pod import SimulatedPod
from wherry.testing.nodes.reporter import NodeReporter
from wherry.testing.nodes.scripts import Scripts
from wherry.testing.nodes.stepped import Stepped


class RunningPods:
    """The pods of all nodes, on one informer. `find_node` returns a simulated node by its name."""

    def __init__(
        self,
        client: Client,
        find_node: Callable[[str], NodeReporter | None],
        clock: Clock,
        scripts: Scripts,
        references: References,
    ) -> None:
        self._find_node, self._clock, self._scripts, self._references = find_node, clock, scripts, references
        self._pods: dict[str, SimulatedPod] = {}
        """By namespace/name."""
        self._informer: Informer[core_v1.Pod] = Informer(client, core_v1.Pod, clock=clock)
        self._controller = Controller("simulated nodes", self._reconcile, workers=4, clock=clock)
        self._missing_objects = MissingObjects(client, clock, self._retry)
        self._group: asyncio.TaskGroup | None = None
        self._loops = Loops(clock)
        self._informer.subscribe(self._changed)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Work until the group is cancelled."""
        self._group = group
        group.create_task(self._loops.run("pods of simulated nodes", self._informer.run))
        group.create_task(self._controller.run())

    def get(self, namespace: str, name: str) -> SimulatedPod:
        """Return a pod that a node runs. Raise ClusterError if there is none."""
        found = self.find(namespace, name)
        if found is None:
            raise ClusterError(f"no node runs a pod {namespace}/{name}")
        return found

    def find(self, namespace: str, name: str) -> SimulatedPod | None:
        """Return a pod that a node runs, None if there is none."""
        return self._pods.get(f"{namespace}/{name}")

    def saved(self) -> list[saved_pod.SavedPod]:
        """Return all pods for a file."""
        return [saved_pod.saved(key, pod) for key, pod in self._pods.items()]

    def load(self, pods: Iterable[core_v1.Pod], states: Mapping[str, saved_pod.SavedPod]) -> None:
        """Run pods with the states of a file, by namespace/name."""
        for pod in pods:
            key = f"{pod.metadata.namespace}/{pod.metadata.name}"
            state, node = states.get(key), self._find_node(pod.spec.node_name or "")
            if state is not None and node is not None and state.uid == pod.metadata.uid:
                self._pods[key] = self._started(pod, node)
                saved_pod.restore(self._pods[key], state)

    def on_node(self, name: str) -> list[SimulatedPod]:
        """Return the pods that a node runs."""
        return [pod for pod in self._pods.values() if pod.pod.spec.node_name == name]

    def woken(self, namespace: str, name: str) -> None:
        """Step a pod: something was done to it."""
        self._controller.enqueue(f"{namespace}/{name}")

    def wake_all(self, node: str) -> None:
        """Step all pods of a node, also those that were deleted while it was away."""
        for key in [key for key, pod in self._pods.items() if pod.pod.spec.node_name == node]:
            self._controller.enqueue(key)
        for pod in self._informer.list():
            if pod.spec.node_name == node:
                self._controller.enqueue(f"{pod.metadata.namespace}/{pod.metadata.name}")

    def _retry(self, key: str) -> None:
        """Step a pod that may find what it waits for."""
        if (pod := self._pods.get(key)) is not None:
            pod.retry()
            self._controller.enqueue(key)

    def _changed(self, change: Change[core_v1.Pod]) -> None:
        if self._find_node(change.new.spec.node_name or "") is not None:
            self._controller.enqueue(change.key)

    async def _reconcile(self, key: str) -> float | None:
        pod = self._informer.get(key)
        node = self._find_node(pod.spec.node_name or "") if pod is not None else None
        if pod is None or node is None:
            self._forget(key)
            return None
        if node.node.state != "running" or not node.node.range:
            return None
        running = self._pods.get(key)
        if running is None or running.uid != pod.metadata.uid:
            if pod.status.phase in ENDED_PHASES and pod.metadata.deletion_timestamp is None:
                return None
            self._forget(key)
            running = self._pods[key] = self._started(pod, node)
        running.pod = pod
        await running.mount()
        stepped = running.step()
        if running.misses_objects and self._group is not None:
            self._missing_objects.add(key, self._group, self._loops)
        else:
            self._missing_objects.discard(key)
        await self._send(node, running, stepped)
        return None if stepped.wake_at is None else max(0.0, stepped.wake_at - self._clock.now().timestamp())

    def _started(self, pod: core_v1.Pod, reporter: NodeReporter) -> SimulatedPod:
        node = reporter.node
        return SimulatedPod(
            pod,
            self._scripts,
            self._clock,
            mounts=Mounts(self._references, reporter.client),
            references=self._references,
            addresses=node.pod_addresses,
            host_addresses=(node.address,),
        )

    async def _send(self, node: NodeReporter, running: SimulatedPod, stepped: Stepped) -> None:
        pod = running.pod
        name, namespace = pod.metadata.name or "", pod.metadata.namespace or ""
        for event in stepped.events:
            path = f"spec.containers{{{event.container}}}" if event.container else ""
            node.recorder.event(pod, event.type, event.reason, event.message, field_path=path)
        patch = difference(pod.status, stepped.status)
        if patch is not None:
            body: dict[str, Any] = {"metadata": {"uid": running.uid}, "status": patch}
            try:
                await node.client.patch(core_v1.Pod, name, namespace, body, type=STRATEGIC, subresource="status")
            except StatusError as error:
                if not error.not_found:
                    raise
                return
        if stepped.delete:
            try:
                await node.client.delete(core_v1.Pod, name, namespace, grace_period_seconds=0, uid=running.uid)
            except StatusError as error:
                if not (error.not_found or error.conflict):  # else the pod is gone, or another one has its name
                    raise
            self._forget(f"{namespace}/{name}")

    def _forget(self, key: str) -> None:
        """Drop a pod that is gone; who still reads a log of it is at its end."""
        self._missing_objects.discard(key)
        if (gone := self._pods.pop(key, None)) is not None:
            gone.lose_power()
