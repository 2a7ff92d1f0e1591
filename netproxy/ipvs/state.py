"""Translates service ports to virtual servers, set entries, and addresses of kube-ipvs0. No I/O.

IPVS processes packets to local addresses, so each address of a Service is assigned to a dummy device, and node ports have a
virtual server on every address of the node. Which packets are masqueraded or
refused is decided by fixed chains (xtables/ipvs_chains.py) that match sets under upstream's names (pkg/proxy/ipvs/ipset.go).

As upstream, a virtual server has one list of endpoints: with externalTrafficPolicy Local, traffic from inside the cluster is
also sent to local endpoints, and to all endpoints if there is no local one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from netproxy.endpoints import Endpoint
from netproxy.model import ServicePort
from netproxy.source_ranges import SourceRanges

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_HALVES = {"0.0.0.0/0": ("0.0.0.0/1", "128.0.0.0/1"), "::/0": ("::/1", "8000::/1")}


class Server(NamedTuple):
    """A virtual server's address."""

    protocol: str
    ip: str
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Balancing of a virtual server; `affinity` in seconds, 0 for none."""

    scheduler: str
    affinity: int
    endpoints: frozenset[str]
    """As "ip:port"."""


@dataclass(slots=True)
class State:
    """The state of the kernel for some ports, desired or actual."""

    servers: dict[Server, ServerConfig] = field(default_factory=dict)
    entries: set[tuple[str, str]] = field(default_factory=set)
    """(set without its family, entry)."""
    addresses: set[str] = field(default_factory=set)

    @property
    def size(self) -> int:
        """Return about how many lines it takes to write this."""
        return len(self.entries) + sum(len(each.endpoints) for each in self.servers.values())


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """Settings of every port's state in one family."""

    family: int = 4
    scheduler: str = "rr"
    scheduler_flags: tuple[str, ...] = ()
    node_addresses: tuple[str, ...] = ()
    """Addresses that serve node ports."""
    own_addresses: frozenset[str] = frozenset()
    """All of the node's own: a virtual server there needs no address of kube-ipvs0, and the node's other ports stay open."""


def plan(ports: Iterable[ServicePort], settings: PlanSettings) -> State:
    """Return the state for those ports that are of the settings' family."""
    state = State()
    for port in ports:
        if port.family == settings.family:
            _Port(port, settings, state).write()
    return state


class _Port:
    def __init__(self, port: ServicePort, settings: PlanSettings, out: State) -> None:
        self.port, self.settings, self.out = port, settings, out
        self.protocol = port.protocol.lower()
        self.host = "/32" if port.family == 4 else "/128"

    def write(self) -> None:
        port = self.port
        self._serve(port.cluster_ip, port.internal_endpoints)
        self._enter("KUBE-CLUSTER-IP", self._key(port.cluster_ip))
        outside = self._outside_endpoints()
        local = "-LOCAL" if port.external_local else ""
        for ip in port.external_ips:
            self._serve(ip, outside)
            self._enter(f"KUBE-EXTERNAL-IP{local}", self._key(ip))
        for ip in port.load_balancer_ips:
            self._serve(ip, outside)
            self._enter("KUBE-LOAD-BALANCER", self._key(ip))
            if local:
                self._enter("KUBE-LOAD-BALANCER-LOCAL", self._key(ip))
            if port.source_ranges:
                self._source_ranges(ip)
        if port.node_port:
            self._node_port(outside, local)
        if port.health_check_node_port:
            self._enter("KUBE-HEALTH-CHECK-NODE-PORT", str(port.health_check_node_port))
        for endpoint in (*port.endpoints, *port.local_endpoints):
            # An endpoint elsewhere meets itself here only where other nodes' pods are not masqueraded.
            if endpoint.local or port.external_local:
                self._enter("KUBE-LOOP-BACK", f"{endpoint.ip},{self.protocol}:{endpoint.port},{endpoint.ip}")

    def _outside_endpoints(self) -> Sequence[Endpoint]:
        port = self.port
        if port.external_local:
            return port.local_endpoints or port.endpoints
        return port.endpoints

    def _node_port(self, endpoints: Sequence[Endpoint], local: str) -> None:
        number = self.port.node_port
        for ip in self.settings.node_addresses:
            self.out.servers[Server(self.protocol, ip, number)] = self._server_config(endpoints)
        if self.protocol == "sctp":
            for ip in self.settings.node_addresses:
                self._enter("KUBE-NODE-PORT-SCTP-HASH", f"{ip},sctp:{number}")
                if local:
                    self._enter("KUBE-NODE-PORT-LOCAL-SCTP-HASH", f"{ip},sctp:{number}")
            return
        self._enter(f"KUBE-NODE-PORT-{self.port.protocol}", str(number))
        if local:
            self._enter(f"KUBE-NODE-PORT-LOCAL-{self.port.protocol}", str(number))

    def _source_ranges(self, ip: str) -> None:
        self._enter("KUBE-LOAD-BALANCER-FW", self._key(ip))
        ranges = SourceRanges.of(self.port.source_ranges)
        for cidr in ranges.canonical:
            # hash:net knows no /0: two halves are the same.
            for text in _HALVES.get(cidr, (cidr.removesuffix(self.host),)):
                self._enter("KUBE-LOAD-BALANCER-SOURCE-CIDR", f"{self._key(ip)},{text}")
        if ranges.contain_any(self.settings.node_addresses):
            # Where the balancer's address is a local one, the node's own requests carry it as their source.
            self._enter("KUBE-LOAD-BALANCER-SOURCE-IP", f"{self._key(ip)},{ip}")

    def _serve(self, ip: str, endpoints: Sequence[Endpoint]) -> None:
        self.out.servers[Server(self.protocol, ip, self.port.port)] = self._server_config(endpoints)
        if ip not in self.settings.own_addresses:
            self.out.addresses.add(ip)
            self._enter("KUBE-IPVS-IPS", ip)

    def _server_config(self, endpoints: Sequence[Endpoint]) -> ServerConfig:
        return ServerConfig(
            self.settings.scheduler, self.port.affinity_seconds, frozenset(str(endpoint) for endpoint in endpoints)
        )

    def _key(self, ip: str) -> str:
        return f"{ip},{self.protocol}:{self.port.port}"

    def _enter(self, name: str, entry: str) -> None:
        self.out.entries.add((name, entry))


def networks(texts: Iterable[str]) -> list[Network]:
    """Read ranges."""
    return [ipaddress.ip_network(text, strict=False) for text in texts]


def within(ip: str, ranges: Iterable[Network]) -> bool:
    """Return whether an address is in any of the ranges."""
    address = ipaddress.ip_address(ip)
    return any(address in network for network in ranges)  # never in one of the other family


def gains_endpoints(before: Mapping[Server, ServerConfig], after: Mapping[Server, ServerConfig]) -> bool:
    """Return whether a virtual server that was there gets endpoints, which it may still have with weight 0."""
    return any(server in before and new.endpoints - before[server].endpoints for server, new in after.items())
