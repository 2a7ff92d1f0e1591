"""Informers of a node's gateway: the objects that routes are computed from, endpoints, certificates, and the node."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

from kube import kubeconfig, servers
from kube.api import core_v1, discovery_v1, networking_v1
from kube.client import Client
from kube.clock import Clock
from kube.gateway import names
from kube.gateway.informers import Informers
from kube.gateway.objects import Gateway, GatewayClass, HTTPRoute, ReferenceGrant
from kube.informer import Informer
from kube.servers import Servers
from kube.transport import HttpsTransport
from netproxy.model import owner_of

OWNER, UID = "owner", "uid"
"""Indexes of EndpointSlices by their Service, and of a gateway's own ones by the UID of the Gateway."""


@dataclass(frozen=True, slots=True)
class Api:
    """The informers."""

    objects: Informers
    slices: Informer[discovery_v1.EndpointSlice]
    certificates: Informer[core_v1.Secret]
    hosts: Informer[core_v1.ConfigMap]
    """Records of the owners of hosts (kube.gateway.ingress_hosts)."""
    node: Informer[core_v1.Node]

    @property
    def informers(self) -> Iterable[Informer[Any]]:
        each = self.objects
        return (
            each.classes,
            each.gateways,
            each.routes,
            each.grants,
            each.namespaces,
            each.services,
            each.ingress_classes,
            each.ingresses,
            self.slices,
            self.certificates,
            self.hosts,
            self.node,
        )

    def service(self, namespace: str, name: str) -> core_v1.Service | None:
        return self.objects.services.get(f"{namespace}/{name}")

    def endpoint_slices(self, namespace: str, name: str) -> Iterable[discovery_v1.EndpointSlice]:
        return self.slices.by_index(OWNER, f"{namespace}/{name}")

    def ports(self, uid: str) -> dict[int, int]:
        """Return the ports that nodes listen on for a Gateway, by listeners' ports."""
        return {
            int(number): port.port
            for found in self.slices.by_index(UID, uid)
            for port in found.ports
            if port.port and (number := (port.name or "").removeprefix(names.port_name(0)[:-1])).isdigit()
        }


def build(client: Client, node_name: str, clock: Clock) -> Api:
    """Return the informers, none of them running."""

    def informer(kind: type[Any], **options: Any) -> Informer[Any]:
        return Informer(client, kind, clock=clock, **options)

    return Api(
        Informers(
            classes=informer(GatewayClass, skip_unreadable=True),
            gateways=informer(Gateway, skip_unreadable=True),
            routes=informer(HTTPRoute, skip_unreadable=True),
            grants=informer(ReferenceGrant, skip_unreadable=True),
            namespaces=informer(core_v1.Namespace),
            services=informer(core_v1.Service),
            ingress_classes=informer(networking_v1.IngressClass),
            ingresses=informer(networking_v1.Ingress),
        ),
        slices=informer(discovery_v1.EndpointSlice, indexes={OWNER: _owner, UID: _uid}),
        certificates=informer(core_v1.Secret, namespace=names.NAMESPACE, label_selector=names.CERTIFICATE),
        hosts=informer(core_v1.ConfigMap, namespace=names.NAMESPACE),
        node=informer(core_v1.Node, field_selector=f"metadata.name={node_name}"),
    )


@contextlib.asynccontextmanager
async def connected(path: str, node_name: str, clock: Clock) -> AsyncIterator[Api]:
    """Yield the informers with a client from a kubeconfig. Its certificate is renewed by the network role."""
    access = kubeconfig.load(path)
    known = Servers(access.server, servers.beside(path))
    client = Client(HttpsTransport(access, "wherry-gateway", known))
    api = build(client, node_name, clock)
    api.slices.subscribe(known.changed)
    try:
        yield api
    finally:
        await client.close()


def _owner(found: discovery_v1.EndpointSlice) -> tuple[str, ...]:
    owner = owner_of(found)
    return (owner,) if owner else ()


def _uid(found: discovery_v1.EndpointSlice) -> tuple[str, ...]:
    if found.metadata.namespace != names.NAMESPACE:
        return ()
    uid = found.metadata.labels.get(names.UID)
    return (uid,) if uid else ()
