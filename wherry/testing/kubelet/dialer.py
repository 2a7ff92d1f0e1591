"""Connects the API server with the kubelets of simulated nodes, inside this process: they listen on no port."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from control.dialing.node_dialer import Dialer, Endpoint, unreachable
from kube.clock import Clock
from wherry.testing.kubelet.tasks import Tasks
from wherry.testing.nodes.handlers import Handlers
from wherry.testing.nodes.node import SimulatedNode

if TYPE_CHECKING:
    from wherry.testing.kubelet.server import LocalServer
    from wherry.testing.nodes.nodes import SimulatedNodes


class KubeletDialer:
    """Dials simulated nodes; `others` dials all other nodes."""

    def __init__(self, others: Dialer, handlers: Handlers, clock: Clock) -> None:
        self._others, self._handlers, self._clock = others, handlers, clock
        self._nodes: SimulatedNodes | None = None
        self._servers: WeakKeyDictionary[SimulatedNode, LocalServer] = WeakKeyDictionary()
        self._tasks = Tasks()

    def serve(self, nodes: SimulatedNodes) -> None:
        """Serve the kubelet's API of these nodes from now on."""
        self._nodes = nodes

    async def dial(self, endpoint: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a node's kubelet. Raise StatusError if the node is off or partitioned."""
        node = self._nodes.find(endpoint.node) if self._nodes is not None else None
        if node is None:
            return await self._others.dial(endpoint)
        if node.state != "running":
            raise unreachable(endpoint, f"dial tcp {endpoint.authority}: connect: no route to host")
        server = self._servers.get(node) or await self._started(node)
        try:
            stream = await server.connect()
        except OSError as error:
            raise unreachable(endpoint, f"dial tcp {endpoint.authority}: {error.strerror}") from error
        node.connections.add(stream.writer)
        return stream.reader, stream.writer

    async def _started(self, node: SimulatedNode) -> LocalServer:
        # Tests that read no logs and run no commands need not import the kubelet's server.
        app, server = await asyncio.to_thread(_import)
        if node not in self._servers:
            from wherry.testing.kubelet.node_pods import NodePods

            assert self._nodes is not None
            pods = NodePods(self._nodes, node.name)
            journal = self._nodes.journal(node.name)
            built = app.build(pods, self._handlers, self._clock, self._tasks, journal)
            self._servers[node] = server.LocalServer(built)
        return self._servers[node]

    async def close(self) -> None:
        """End all sessions and connections."""
        await self._tasks.close()
        for node in list(self._servers):
            node.disconnect()


def _import() -> tuple[Any, Any]:
    return importlib.import_module("wherry.testing.kubelet.app"), importlib.import_module(
        "wherry.testing.kubelet.server"
    )
