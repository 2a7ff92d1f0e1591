"""The API for all subsystems of a process: the client, one watch a kind of object, and events."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from kube import kubeconfig, servers
from kube.api import core_v1, discovery_v1
from kube.client import Client
from kube.clock import Clock
from kube.events import EventRecorder
from kube.informer import Informer
from kube.servers import Servers
from kube.transport import HttpsTransport
from netproxy import own_certificate
from netproxy.config import ProxyConfig
from netproxy.errors import ConfigError
from netproxy.events import Events
from netproxy.slim_objects import SlimNode
from netproxy.tasks import Task


@dataclass(frozen=True, slots=True)
class Api:
    """The client and what follows the API; `service_tasks` and `node_tasks` run it."""

    client: Client
    services: Informer[core_v1.Service]
    slices: Informer[discovery_v1.EndpointSlice]
    node: Informer[core_v1.Node]
    """This node alone."""
    nodes: Informer[SlimNode]
    recorder: EventRecorder
    events: Events

    @classmethod
    def build(cls, client: Client, component: str, node_name: str, clock: Clock) -> Api:
        """`component` is the source of events."""
        recorder = EventRecorder(client, component, node_name, clock=clock)
        return cls(
            client,
            Informer(client, core_v1.Service, clock=clock),
            Informer(client, discovery_v1.EndpointSlice, clock=clock),
            Informer(client, core_v1.Node, field_selector=f"metadata.name={node_name}", clock=clock),
            Informer(client, SlimNode, clock=clock),
            recorder,
            Events(recorder, node_name),
        )

    def service_tasks(self) -> Iterator[Task]:
        yield Task("follow services", self.services.run)
        yield Task("follow endpoint slices", self.slices.run)
        yield Task("send events", self.recorder.run)

    def node_tasks(self) -> Iterator[Task]:
        yield Task("follow the node", self.node.run)
        yield Task("follow all nodes", self.nodes.run)


@contextlib.asynccontextmanager
async def connected(
    config: ProxyConfig, client: Client | None, component: str, clock: Clock
) -> AsyncIterator[tuple[Api, list[Task]]]:
    """Yield the API and what has to run for its client: the given one, or one made from the configuration's kubeconfig.

    ConfigError where the configuration names no kubeconfig.
    """
    if client is not None:
        yield Api.build(client, component, config.node_name, clock), []
        return
    if not config.kubeconfig:
        raise ConfigError("clientConnection.kubeconfig: required: it contains the API server's address")
    access = kubeconfig.load(config.kubeconfig)
    known = Servers(access.server, servers.beside(config.kubeconfig))
    transport = HttpsTransport(access, "wherry-netproxy", known)
    made = Client(transport)
    renewal = own_certificate.rotation(access, transport, clock)
    api = Api.build(made, component, config.node_name, clock)
    api.slices.subscribe(known.changed)
    try:
        yield api, [] if renewal is None else [Task("own certificate", renewal.run)]
    finally:
        await made.close()
