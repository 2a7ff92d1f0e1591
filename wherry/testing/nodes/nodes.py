"""The simulated nodes of a cluster: they are added, fail and recover, and their leases are renewed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping

from agent.podspec.environment import References
from control.interfaces.local_nodes import LocalNodes
from kube.api import core_v1
from kube.client import Client
from kube.clock import Clock
from kube.errors import StatusError
from kube.informer import Change, Informer
from kube.journal import Journal
from kube.loops import Loops
from wherry.testing.errors import ClusterError
from wherry.testing.nodes.node import PRESSURES, SimulatedNode
from wherry.testing.nodes.reporter import NodeReporter
from wherry.testing.nodes.running_pods import RunningPods
from wherry.testing.nodes.saved_node import SavedNode, saved
from wherry.testing.nodes.saved_pod import SavedPod
from wherry.testing.nodes.scripts import Scripts

RENEW_SECONDS = 10.0
SCHEDULABLE_SECONDS = 30.0
"""Time in which a node must get a range of addresses and lose its first taints."""


class SimulatedNodes:
    """All simulated nodes, numbered from `first` on. `client_of` returns a client that acts as a node."""

    def __init__(
        self,
        client: Client,
        client_of: Callable[[str], Client],
        clock: Clock,
        scripts: Scripts,
        references: References,
        local: LocalNodes,
        first: int = 1,
    ) -> None:
        self._local, self._client_of, self._clock = local, client_of, clock
        self._nodes: dict[str, NodeReporter] = {}
        self._adding: set[str] = set()
        """Names of nodes that are being registered."""
        self.pods = RunningPods(client, self._nodes.get, clock, scripts, references)
        self._objects: Informer[core_v1.Node] = Informer(client, core_v1.Node, clock=clock)
        self._loops = Loops(clock)
        self._group: asyncio.TaskGroup | None = None
        self._number = first - 1
        self._objects.subscribe(self._node_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for each in self._nodes.values():
                each.start(group)
            self.pods.start(group)
            group.create_task(self._loops.run("simulated nodes", self._objects.run))
            group.create_task(self._loops.run("leases of simulated nodes", self._renew_leases))

    # -- nodes ----------------------------------------------------------------------------------------------------
    async def add(
        self, name: str = "", *, labels: dict[str, str] | None = None, capacity: dict[str, str] | None = None
    ) -> SimulatedNode:
        """Register a node and wait until it is ready."""
        self._number += 1
        known = {*self._nodes, *self._adding}
        name = name or next(each for n in itertools.count(1) if (each := f"node-{n}") not in known)
        if name in known:
            raise ClusterError(f"there is a node {name} already")
        node = SimulatedNode(name, self._number, labels=dict(labels or {}))
        node.capacity.update(capacity or {})
        reporter = NodeReporter(node, self._client_of(name), self._clock)
        self._adding.add(name)
        try:
            await reporter.register()
        except StatusError as error:
            raise ClusterError(f"the node {name} cannot be added: {error.message}") from error
        finally:
            self._adding.discard(name)
        self._adopt(reporter)
        await self._report(reporter)
        try:
            async with asyncio.timeout(SCHEDULABLE_SECONDS):
                await node.schedulable.wait()
        except TimeoutError:
            raise ClusterError(f"the node {name} has no range or no end of its taints after 30 s") from None
        return node

    def _adopt(self, reporter: NodeReporter) -> None:
        """Run a node whose object exists."""
        if self._group is not None:
            reporter.start(self._group)
        self._nodes[reporter.node.name] = reporter

    async def _report(self, reporter: NodeReporter) -> None:
        """Let a node be ready from now on."""
        self._local.add(reporter.node.name)
        await reporter.report()
        await reporter.renew()

    async def load(
        self, nodes: Iterable[SavedNode], pods: Iterable[core_v1.Pod], states: Mapping[str, SavedPod]
    ) -> None:
        """Run nodes and pods whose objects exist, with the states of a file; those of pods by namespace/name."""
        for each in nodes:
            self._number = max(self._number, each.number)
            self._adopt(NodeReporter(each.node(), self._client_of(each.name), self._clock))
        self.pods.load(pods, states)
        for reporter in self._nodes.values():
            if reporter.node.state == "running":
                await self._report(reporter)

    def saved(self) -> list[SavedNode]:
        """Return all nodes for a file."""
        return [saved(each.node) for each in self._nodes.values()]

    def get(self, name: str) -> SimulatedNode:
        """Return a node by its name. Raise ClusterError if there is none."""
        return self._get(name).node

    def find(self, name: str) -> SimulatedNode | None:
        """Return a node by its name, None if there is no such simulated node."""
        found = self._nodes.get(name)
        return found.node if found is not None else None

    def journal(self, name: str) -> Journal:
        """Return the journal of a simulated node. Raise KeyError."""
        return self._nodes[name].journal

    def names(self) -> list[str]:
        return list(self._nodes)

    def _get(self, name: str) -> NodeReporter:
        if name not in self._nodes:
            raise ClusterError(f"no node {name!r}; there are {', '.join(self._nodes) or 'none'}")
        return self._nodes[name]

    # -- failures -------------------------------------------------------------------------------------------------
    def fail(self, name: str) -> None:
        """Take the power from a node: its containers end, and nothing is reported."""
        node = self.get(name)
        node.state = "off"
        self._local.remove(name)
        for pod in self.pods.on_node(name):
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
        reporter = self._get(name)
        reporter.node.state = "running"
        await self._report(reporter)
        self.pods.wake_all(name)

    async def set_pressure(self, name: str, pressure: str, *, on: bool = True) -> None:
        """Report memory, disk or pid pressure, or its end."""
        if pressure not in PRESSURES:
            raise ClusterError(f"no pressure {pressure!r}; there are {', '.join(PRESSURES)}")
        reporter = self._get(name)
        pressures = reporter.node.pressures
        pressures.add(pressure) if on else pressures.discard(pressure)
        await reporter.report()

    async def restore(self, names: Collection[str]) -> None:
        """Forget all other nodes, and let these run without pressure: their objects are restored by the caller."""
        for name in [name for name in self._nodes if name not in names]:
            self._local.remove(name)
            reporter = self._nodes.pop(name)
            reporter.node.disconnect()
            reporter.stop()
        for name, reporter in self._nodes.items():
            if reporter.node.state != "running" or reporter.node.pressures:
                reporter.node.pressures.clear()
                await self.recover(name)

    # -- what happens to them by themselves -----------------------------------------------------------------------
    async def _renew_leases(self) -> None:
        while True:
            await self._clock.sleep_deferrable(RENEW_SECONDS)
            for reporter in list(self._nodes.values()):
                if reporter.node.state == "running":
                    with contextlib.suppress(StatusError):
                        await reporter.beat()

    def _node_changed(self, change: Change[core_v1.Node]) -> None:
        node = self.find(change.new.metadata.name or "")
        if node is None or not change.new.spec.pod_cidr:
            return
        if not change.new.spec.taints:
            node.schedulable.set()
        if node.range:
            return
        node.range = change.new.spec.pod_cidr
        self.pods.wake_all(node.name)
