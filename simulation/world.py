"""The simulated cluster: API servers with controllers and schedulers on one store, and nodes, each a process."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from control.assembly.api_server import ApiServer
from control.auth.user import UserInfo
from control.components.embedded import embedded_components
from control.config import ControlConfig
from control.interfaces.local_nodes import LocalNodes
from control.server.inprocess import InProcessTransport
from control.storage.compactor import Compactor
from control.storage.engine import Engine
from control.storage.memory import MemoryStore
from kube import pki_layout, resources, serialize
from kube.api import core_v1
from kube.client import Client, Transport
from kube.errors import StatusError
from kube.node_names import NODE_PREFIX, NODES_GROUP
from simulation.clock import SimulatedClock
from simulation.event_loop import Scheduler
from simulation.link import Link, Network
from simulation.origin import ORIGIN, Origin
from simulation.processes import Process
from simulation.sources import START
from simulation.store import RemoteStore
from wherry.testing.engine import config_of, import_components
from wherry.testing.errors import ClusterError
from wherry.testing.kubeconfig import ADMIN
from wherry.testing.nodes.nodes import SimulatedNodes
from wherry.testing.nodes.scripts import Scripts

CAPACITY = {"cpu": "24", "memory": "64Gi", "pods": "60"}
"""Of a node: all nodes together have room for all that the users may want at the same time."""
SMALL = {"pods": "10"}
"""Of the first node, which is often full: the pods of DaemonSets have a priority by which they find room there."""
ADDRESSES, NODE_PORTS = "10.96.0.0/27", (30000, 30011)
"""Addresses and node ports of Services: so few that two members often want the same."""
T = TypeVar("T", bound=msgspec.Struct)
RESTART_SECONDS = 2.0
"""Time from the end of an API server to its next start, as systemd's."""


@cache
def _keys() -> tuple[tempfile.TemporaryDirectory[str], Path]:
    """Create the cluster's keys, once for all runs of this Python process."""
    folder = tempfile.TemporaryDirectory(prefix="wherry-simulation-")
    path = Path(folder.name)
    pki_layout.ensure(path / "pki", now=START - timedelta(days=1), hosts=("127.0.0.1",))
    return folder, path


def prepare() -> Path:
    """Import and create what does not depend on the seed, before the sources of time and chance are replaced."""
    import_components()
    return _keys()[1]


class ControlPlane:
    """One member of the control plane, which is started again when it ends."""

    def __init__(self, name: str, world: World) -> None:
        self.name, self._world = name, world
        self.api: ApiServer | None = None

    def start(self) -> None:
        """Start the member's process."""
        self.process, self.api = Process(self.name, self._world.scheduler), None
        self.process.start(self._run())

    process: Process

    def kill(self) -> None:
        """End the member's process, and start it again later."""
        self.process.kill()
        self.api = None
        self._world.process.loop.call_later(RESTART_SECONDS, self.start)

    def transport(self, user: Any, agent: str) -> Transport:
        """Return a transport into the member. Raise StatusError while it does not serve."""
        if self.api is None:
            raise StatusError(503, "ServiceUnavailable", "cannot reach the API server: connection refused")
        return InProcessTransport(self.api.pipeline, user, agent)

    async def _run(self) -> None:
        world, clock = self._world, self._world.clock
        ORIGIN.set(Origin("", "", "apiserver", self.process, clock.monotonic(), self.name))
        store = RemoteStore(world.store, world.store_process, world.network, self.name)

        async def opened() -> Engine:
            return Engine(store, Compactor(store, clock).run, shared=True)

        async with ApiServer.open(world.config, clock, opened()) as api:
            self.api = api
            async with asyncio.TaskGroup() as group:
                for name, work in _embedded(api, self, world):
                    group.create_task(work, name=name)


def _embedded(api: ApiServer, member: ControlPlane, world: World) -> list[tuple[str, Any]]:
    def make_client(user: UserInfo, agent: str) -> Client:
        return Client(Link(world.network, lambda: member, user, agent))

    return embedded_components(world.config, make_client, world.clock, None, None, api.journal)


class Node:
    """A machine with a kubelet, whose containers are scripts."""

    def __init__(self, name: str, number: int, world: World) -> None:
        self.name, self._world = name, world
        self._capacity = CAPACITY | (SMALL if number == 1 else {})
        self.process = Process(name, world.scheduler)
        self.client = world.client(UserInfo(NODE_PREFIX + name, groups=(NODES_GROUP,)), f"kubelet/{name}")
        informers = world.client(agent=f"kubelet/{name}")  # of all pods and nodes, which a kubelet may not list
        self.nodes = SimulatedNodes(
            informers, lambda _: self.client, world.clock, world.scripts, world, LocalNodes(), number
        )

    def start(self) -> None:
        """Start the kubelet."""
        self.process.start(self._run())

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.nodes.run())
            await asyncio.sleep(0)
            while self.name not in self.nodes.names():
                with contextlib.suppress(ClusterError, StatusError):
                    await self.nodes.add(self.name, capacity=self._capacity)
                await asyncio.sleep(1)
            await self.recover()

    async def recover(self) -> None:
        """Undo `fail`; repeat it until the API server has heard of it."""
        while True:
            try:
                await self.nodes.recover(self.name)
                return
            except StatusError:
                await asyncio.sleep(5)

    @property
    def running(self) -> bool:
        node = self.nodes.find(self.name)
        return node is not None and node.state == "running"

    def fail(self) -> None:
        """Take the power."""
        if self.running:
            self.process.loop.call_soon(self.nodes.fail, self.name)

    def power_on(self) -> None:
        """Give the power back."""
        if self.nodes.find(self.name) is not None and not self.running:
            self.process.start(self.recover())


class World:
    """All processes, the network between them, and the store."""

    def __init__(self, scheduler: Scheduler, rng: random.Random, *, members: int, nodes: int) -> None:
        self.scheduler, self.rng, self.network = scheduler, rng, Network(random.Random(rng.random()))
        self.clock = SimulatedClock(scheduler)
        self.store, self.scripts = MemoryStore(self.clock), Scripts()
        self.process, self.store_process = Process("world", scheduler), Process("store", scheduler)
        base = config_of(prepare(), 6443)
        self.config: ControlConfig = msgspec.structs.replace(
            base, store="etcd", service_cidr=ADDRESSES, node_port_range=NODE_PORTS
        )
        self.members = [ControlPlane(f"control-{n}", self) for n in range(1, members + 1)]
        self.nodes = [Node(f"node-{n}", n, self) for n in range(1, nodes + 1)]

        self.observers: list[Process] = []
        """Processes of clients that faults reach too."""

    def start(self) -> None:
        """Start all processes."""
        for member in self.members:
            member.start()
        for node in self.nodes:
            node.start()

    def serving(self) -> ControlPlane | None:
        """Return a member that serves, as a client's list of servers leads to one."""
        found = [each for each in self.members if each.api is not None and each.process.alive]
        return self.rng.choice(found) if found else None

    def client(self, user: UserInfo = ADMIN, agent: str = "kubectl") -> Client:
        """Return a client of whatever member serves."""
        return Client(Link(self.network, self.serving, user, agent))

    # -- the objects that pods refer to, as a kubelet's cache has them ------------------------------------------------
    def config_map(self, namespace: str, name: str) -> core_v1.ConfigMap | None:
        """Return a ConfigMap of the store."""
        return self._peek(core_v1.ConfigMap, namespace, name)

    def secret(self, namespace: str, name: str) -> core_v1.Secret | None:
        """Return a Secret of the store."""
        return self._peek(core_v1.Secret, namespace, name)

    def _peek(self, kind: type[T], namespace: str, name: str) -> T | None:
        member = self.serving()
        if member is None or member.api is None:
            return None
        entry = member.api.registry.peek(resources.of(kind), namespace, name)
        return serialize.decode(entry.data, kind) if entry is not None else None
