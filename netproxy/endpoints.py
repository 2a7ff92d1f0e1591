"""Selects the endpoints that a service port may use, by traffic policy, conditions and topology hints. No I/O.

Upstream's rule (pkg/proxy/topology.go): ready endpoints first; if the policy finds none, those that are serving and
terminating. Hints (topology aware routing, trafficDistribution) narrow the ready ones to this node or zone only if every
ready endpoint has a hint and at least one is for this node or zone, because otherwise some endpoints would get no traffic. An
address that is loopback, link-local, multicast or unspecified is never an endpoint: a user who may write EndpointSlices could
otherwise direct a Service to the node itself (CVE-2021-25737).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Generator, Iterable
from dataclasses import dataclass

from kube.api import discovery_v1
from kube.ip_addresses import reached
from kube.urls import host_port


@dataclass(frozen=True, slots=True)
class NodeView:
    """The node's name and zone, by which endpoints are selected."""

    name: str = ""
    zone: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """One address and port behind a service port."""

    ip: str
    port: int
    local: bool = False
    ready: bool = True
    serving: bool = True
    terminating: bool = False
    zones: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return host_port(self.ip, self.port)


def usable_address(text: str) -> str:
    """Return the canonical form of an endpoint address, or "" for one that must not be an endpoint."""
    try:
        if ":" not in text:
            # By hand what ipaddress says below, in a tenth of the time: 10 000 endpoints are read at every start.
            packed = socket.inet_pton(socket.AF_INET, text)
            bad = packed[0] == 127 or packed[:2] == b"\xa9\xfe" or packed[0] >> 4 == 0xE or packed == bytes(4)
            return "" if bad else text
    except (OSError, ValueError):
        return ""
    try:
        address, found = ipaddress.ip_address(text), reached(text)
    except ValueError:
        return ""
    bad = found.is_loopback or found.is_link_local or found.is_multicast or found.is_unspecified
    return "" if bad else str(address)


SlicePorts = dict[tuple[str, str], list[tuple[discovery_v1.EndpointSlice, list[int]]]]
"""(port name, protocol) to the slices that have such ports, and their numbers."""


def by_port(slices: Iterable[discovery_v1.EndpointSlice]) -> SlicePorts:
    """Index the ports of slices, so that a Service of thousands of ports does not read all of them for each."""
    index: SlicePorts = {}
    for slice_ in slices:
        for _ in add_ports(index, slice_, max(1, len(slice_.ports))):
            pass
    return index


def add_ports(index: SlicePorts, slice_: discovery_v1.EndpointSlice, most: int) -> Generator[None]:
    """Add the ports of a slice to an index; yield after each `most` of them."""
    own: dict[tuple[str, str], list[int]] = {}
    for position, port in enumerate(slice_.ports, 1):
        if port.port:
            key = port.name or "", port.protocol or "TCP"
            numbers = own.get(key)
            if numbers is None:
                numbers = own[key] = []
                index.setdefault(key, []).append((slice_, numbers))
            numbers.append(port.port)
        if position % most == 0:
            yield


def collect(
    slice_ports: SlicePorts, family: int, port_name: str, protocol: str, node: NodeView
) -> tuple[Endpoint, ...]:
    """Return the endpoints of a service port from its slices' index, each address and port once, in a fixed order."""
    address_type = "IPv4" if family == 4 else "IPv6"
    found: dict[tuple[str, int], Endpoint] = {}
    for slice_, ports in slice_ports.get((port_name, protocol), ()):
        if slice_.address_type != address_type:
            continue
        for endpoint in slice_.endpoints:
            # All addresses of one endpoint are fungible: upstream uses the first.
            ip = usable_address(endpoint.addresses[0]) if endpoint.addresses else ""
            if not ip:
                continue
            conditions = endpoint.conditions or discovery_v1.EndpointConditions()
            ready = conditions.ready is not False
            hints = endpoint.hints or discovery_v1.EndpointHints()
            for port in ports:
                candidate = Endpoint(
                    ip=ip,
                    port=port,
                    local=bool(node.name) and endpoint.node_name == node.name,
                    ready=ready,
                    serving=ready if conditions.serving is None else conditions.serving,
                    terminating=conditions.terminating is True,
                    zones=frozenset(zone.name for zone in hints.for_zones),
                    nodes=frozenset(each.name for each in hints.for_nodes),
                )
                known = found.get((ip, port))
                # During a move between slices an endpoint may be in two of them: the one that may be used wins.
                if known is None or (candidate.ready, candidate.serving) > (known.ready, known.serving):
                    found[ip, port] = candidate
    return tuple(found[key] for key in sorted(found))


def cluster_endpoints(endpoints: Iterable[Endpoint], node: NodeView) -> tuple[Endpoint, ...]:
    """Return what the policy `Cluster` may use."""
    ready = tuple(endpoint for endpoint in endpoints if endpoint.ready)
    return _with_hints(ready, node) or _serving_terminating(endpoints)


def local_endpoints(endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """Return what the policy `Local` may use."""
    local = tuple(endpoint for endpoint in endpoints if endpoint.local)
    return tuple(endpoint for endpoint in local if endpoint.ready) or _serving_terminating(local)


def _serving_terminating(endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    return tuple(endpoint for endpoint in endpoints if endpoint.serving and endpoint.terminating)


def _with_hints(ready: tuple[Endpoint, ...], node: NodeView) -> tuple[Endpoint, ...]:
    if node.name and all(endpoint.nodes for endpoint in ready):
        here = tuple(endpoint for endpoint in ready if node.name in endpoint.nodes)
        if here:
            return here
    if node.zone and all(endpoint.zones for endpoint in ready):
        return tuple(endpoint for endpoint in ready if node.zone in endpoint.zones) or ready
    return ready
