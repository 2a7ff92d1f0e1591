"""Cluster DNS of a node: its zone, its server, and its informers. It runs with or without a Service proxy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kube.api import discovery_v1
from kube.clock import Clock
from kube.daemon_roles import NETWORK_POLICY
from kube.informer import Change, Informer
from netproxy import local_addresses
from netproxy.api import Api
from netproxy.config import ProxyConfig
from netproxy.dns.directory import InformerDirectory
from netproxy.dns.forwarder import Forwarder, ResolvConf
from netproxy.dns.namespaces import Namespaces
from netproxy.dns.responder import Responder
from netproxy.dns.server import DNSServer
from netproxy.dns.zone import Zone
from netproxy.model import owner_of
from netproxy.slim_objects import SlimPod
from netproxy.tasks import Task


@dataclass(slots=True)
class ClusterDNS:
    """The components of a node's DNS, before they are started."""

    addresses: tuple[str, ...]
    responder: Responder
    server: DNSServer
    namespaces: Namespaces
    named_pods: Informer[SlimPod] | None
    """Informer of all pods, if names are answered only for existing ones."""

    async def prepare(self) -> None:
        """Assign the cluster DNS addresses to the node."""
        for address in self.addresses:
            await local_addresses.add_local_address(address)

    def forget_changes(self, api: Api) -> None:
        """Drop cached answers when their Services or slices change."""

        def slice_changed(change: Change[discovery_v1.EndpointSlice]) -> None:
            for key in {owner_of(each) for each in (change.old, change.new) if each is not None} - {""}:
                self.responder.forget(key)

        api.services.subscribe(lambda change: self.responder.forget(change.key))
        api.slices.subscribe(slice_changed)

    def tasks(self) -> Iterator[Task]:
        yield Task("cluster DNS", self.server.run)
        yield Task("follow namespaces for DNS", self.namespaces.run)
        if self.named_pods is not None:
            yield Task("follow pods for DNS", self.named_pods.run)


def build(config: ProxyConfig, api: Api, clock: Clock) -> ClusterDNS:
    """Build the components without starting them. The responder drops cached answers of each Service that changes."""
    settings = config.dns
    pods = None
    if settings.pods == "verified":
        pods = Informer(api.client, SlimPod, granted_by=NETWORK_POLICY, clock=clock)
    namespaces = Namespaces(api.client, clock)
    zone = Zone(
        InformerDirectory(api.services, api.slices, pods, namespaces),
        settings.domain,
        ttl=settings.ttl,
        addresses=settings.addresses,
        ranges=(*config.service_cidrs, *config.cluster_cidrs),
        pods=settings.pods,
    )
    forwarder = Forwarder(ResolvConf(settings.resolv_conf, settings.addresses).resolvers, clock=clock)
    followed: list[Informer[Any]] = [api.services, api.slices, *([pods] if pods is not None else [])]
    responder = Responder(zone, forwarder, lambda: all(each.synced for each in followed))
    namespaces.subscribe(lambda: responder.forget(""))
    if pods is not None:
        pods.subscribe(lambda change: responder.forget(""))
    server = DNSServer(responder, settings.addresses, settings.port)
    return ClusterDNS(settings.addresses, responder, server, namespaces, pods)
