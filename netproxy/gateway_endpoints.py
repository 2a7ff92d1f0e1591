"""The endpoints of Gateways' Services that the proxy of a node uses: the node's own gateway, where it listens. No I/O.

The controller lists every ready node as an endpoint, whatever listens on its ports, which need no privilege. What
listens on those of other nodes is not known here: the proxies of these know it.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

import msgspec

from kube.api import discovery_v1
from kube.gateway.names import NAMESPACE, UID
from kube.ip_addresses import canonical
from netproxy.endpoints import NodeView
from netproxy.socket_channel import Address


def is_gateways(slice_: discovery_v1.EndpointSlice) -> bool:
    """Return whether a slice lists gateways of nodes."""
    return slice_.metadata.namespace == NAMESPACE and UID in slice_.metadata.labels


def is_gateways_key(key: str) -> bool:
    """Return whether a Service may have such slices, by its key."""
    return key.startswith(f"{NAMESPACE}/")


def without_other_endpoints(
    slices: Iterable[discovery_v1.EndpointSlice], node: NodeView, addresses: Set[Address]
) -> tuple[discovery_v1.EndpointSlice, ...]:
    """Return slices without the endpoints of gateways that do not listen here, at `addresses`; others are unchanged."""
    found: list[discovery_v1.EndpointSlice] = []
    for each in slices:
        found += _listening_here(each, node, addresses) if is_gateways(each) else (each,)
    return tuple(found)


def _listening_here(
    slice_: discovery_v1.EndpointSlice, node: NodeView, addresses: Set[Address]
) -> Iterable[discovery_v1.EndpointSlice]:
    """Yield a slice for each port: the gateway may listen on one of them and not on another."""
    own = [each for each in slice_.endpoints if node.name and each.node_name == node.name and each.addresses]
    for port in slice_.ports:
        endpoints = [each for each in own if (canonical(each.addresses[0]), port.port) in addresses]
        if endpoints:
            yield msgspec.structs.replace(slice_, ports=[port], endpoints=endpoints)
