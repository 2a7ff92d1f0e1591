"""Cluster DNS put together: what it follows, its zone, its server, and the tasks that keep it. It runs in any process."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from kube.api import core_v1, discovery_v1
from kube.client import Client
from kube.clock import Clock
from kube.informer import Informer
from netproxy.config import ProxyConfig
from netproxy.dns.directory import InformerDirectory
from netproxy.dns.forward import Forwarder, ResolvConf
from netproxy.dns.namespaces import Namespaces
from netproxy.dns.responder import Responder
from netproxy.dns.server import DNSServer
from netproxy.dns.zone import Zone
from netproxy.podnet import routes
from netproxy.policy.objects import SlimPod


@dataclass(slots=True)
class ClusterDNS:
    """The parts of a node's DNS, once built; its addresses become the node's own before it is served."""

    addresses: tuple[str, ...]
    responder: Responder
    server: DNSServer
    namespaces: Namespaces
    named_pods: Informer[SlimPod] | None
    """All pods, where names are answered only for those that exist."""

    async def prepare(self) -> None:
        """Put the addresses on the node."""
        for address in self.addresses:
            await routes.add_local_address(address)

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Return what has to run, each with a name."""
        yield "cluster DNS", self.server.run()
        yield "follow namespaces for DNS", self.namespaces.run()
        if self.named_pods is not None:
            yield "follow pods for DNS", self.named_pods.run()


def build(
    config: ProxyConfig,
    client: Client,
    services: Informer[core_v1.Service],
    slices: Informer[discovery_v1.EndpointSlice],
    clock: Clock,
) -> ClusterDNS:
    """Return the parts. The caller runs both informers and has the responder forget each Service that changes."""
    settings = config.dns
    pods = Informer(client, SlimPod, clock=clock) if settings.pods == "verified" else None
    namespaces = Namespaces(client, clock, lambda: responder.forget(""))
    zone = Zone(
        InformerDirectory(services, slices, pods, namespaces),
        settings.domain,
        ttl=settings.ttl,
        addresses=settings.addresses,
        ranges=(*config.service_cidrs, *config.cluster_cidrs),
        pods=settings.pods,
    )
    forwarder = Forwarder(ResolvConf(settings.resolv_conf, settings.addresses).resolvers, clock=clock)
    followed: list[Informer[Any]] = [services, slices, *([pods] if pods is not None else [])]
    responder = Responder(zone, forwarder, lambda: all(each.synced for each in followed))
    if pods is not None:
        pods.subscribe(lambda change: responder.forget(""))
    server = DNSServer(responder, settings.addresses, settings.port)
    return ClusterDNS(settings.addresses, responder, server, namespaces, pods)
