"""Selects the node addresses of a Service of type LoadBalancer. Pure.

The service proxy of every node answers the addresses that a Service's status names, on the Service's ports. So a load
balancer without a cloud is nothing but its nodes' addresses in the status (ipMode VIP): those of the nodes that can take
traffic, and under the external policy Local of those that have an endpoint. Clients choose among them, by DNS or by hand.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from control.controllers.nodes.health import readiness
from kube.api import core_v1, discovery_v1
from kube.gateway.names import INGRESS, NAMESPACE, UID
from kube.ip_addresses import canonical

EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
MOST_LISTED_PORTS = 8192
"""Ports in a Service's status, counted for each address: 300 KB. Clients need some of the nodes' addresses, not all."""


class NoLoadBalancer(Exception):
    """A Service cannot get an address; the message is the reason."""


class NodeAddress(msgspec.Struct, frozen=True):
    """An address of a node that can take traffic."""

    text: str
    node: str
    kubelet_port: int = 0


def wanted(service: core_v1.Service) -> bool:
    """Return whether this controller serves a Service: one with a loadBalancerClass belongs to another controller."""
    spec = service.spec
    return spec.type == "LoadBalancer" and not spec.load_balancer_class


def takes_single_ports(service: core_v1.Service) -> bool:
    """Return whether a Service gets those of its ports that are free, even if it cannot have others.

    Only that of all Ingresses does: a Service that has port 80 blocks HTTP of all namespaces, but not HTTPS.
    """
    metadata = service.metadata
    return metadata.namespace == NAMESPACE and metadata.labels.get(UID) == INGRESS


def serves(node: core_v1.Node) -> bool:
    """Return whether traffic from outside may be sent to a node."""
    metadata = node.metadata
    return EXCLUDED not in metadata.labels and metadata.deletion_timestamp is None and readiness(node) == "True"


def addresses_of(node: core_v1.Node) -> tuple[str, ...]:
    """Return a node's first InternalIP of each family."""
    found: dict[int, str] = {}
    for each in node.status.addresses:
        if each.type == "InternalIP":
            found.setdefault(6 if ":" in each.address else 4, each.address)
    return tuple(found.values())


def nodes_with_endpoints(slices: Iterable[discovery_v1.EndpointSlice]) -> set[str]:
    """Return the names of the nodes that have a ready endpoint."""
    return {
        endpoint.node_name
        for each in slices
        for endpoint in each.endpoints
        if endpoint.node_name and (endpoint.conditions is None or endpoint.conditions.ready is not False)
    }


def balancer_addresses(
    service: core_v1.Service, addresses: Iterable[NodeAddress], slices: Iterable[discovery_v1.EndpointSlice]
) -> list[NodeAddress]:
    """Return those of the nodes' addresses, which are in order, that a Service should have, in the order of its families;
    NoLoadBalancer if its request cannot be met.
    """
    spec = service.spec
    able = list(addresses)
    if spec.external_traffic_policy == "Local":
        local = nodes_with_endpoints(slices)
        able = [each for each in able if each.node in local]
    if spec.load_balancer_ip and able:
        able = [each for each in able if each.text == canonical(spec.load_balancer_ip)]
        if not able:
            raise NoLoadBalancer(f"the address {spec.load_balancer_ip} is not one of an available node")
    families = spec.ip_families or ["IPv6" if ":" in (spec.cluster_ip or "") else "IPv4"]
    return [each for family in families for each in able if (":" in each.text) == (family == "IPv6")]


def listable(addresses: list[str], ports: int) -> list[str]:
    """Return as many addresses of each family as a status can list with a number of ports at each."""
    families = [[each for each in addresses if (":" in each) == six] for six in (False, True)]
    most = max(1, MOST_LISTED_PORTS // max(1, ports) // max(1, sum(map(bool, families))))
    kept = {each for family in families for each in family[:most]}
    return [each for each in addresses if each in kept]


def given(service: core_v1.Service) -> list[str]:
    """Return the addresses that a Service's status names."""
    balancer = service.status.load_balancer
    return [each.ip for each in (balancer.ingress if balancer is not None else ()) if each.ip]


def ours(service: core_v1.Service, nodes: Iterable[core_v1.Node]) -> bool:
    """Return whether we gave a Service its addresses: no other load balancer gives those of nodes.

    Half of them are enough: a node may have changed its address, or be gone, since they were given.
    """
    if FINALIZER not in service.metadata.finalizers:
        return False
    known = {canonical(address) for node in nodes for address in addresses_of(node)}
    addresses = given(service)
    return bool(addresses) and 2 * sum(canonical(address) in known for address in addresses) >= len(addresses)
