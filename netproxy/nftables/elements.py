"""Translates service ports to map elements (and, with session affinity, own chains). No I/O.

A packet takes two look-ups however many Services there are. The first leads from address, protocol and port to a chain
that depends on nothing but how a port behaves and how many endpoints it has ("internal-3"); the chain draws a number
below that count, and the second look-up leads from address, protocol, port and number to the endpoint. So adding a
Service adds elements and no rule, and every endpoint of any count gets the same share. A Service with source ranges has one
chain, and one set for each of their prefix lengths, for all its ports.

With session affinity each endpoint of a port has a chain, which records its clients. All Services of a namespace with the same
timeout record them in one set, each client with a number for the endpoint: the kernel searches the sets of a table one after
the other for each that it adds or that a rule names, and takes 1 MiB for each.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from netproxy.address_ranges import BITS, mask
from netproxy.endpoints import Endpoint
from netproxy.model import ServicePort
from netproxy.nft.commands import family_keyword
from netproxy.nft.table import Element
from netproxy.nftables import chains
from netproxy.settings import RuleSettings
from netproxy.source_ranges import SourceRanges


@dataclass(slots=True)
class Fragment:
    """Contents of the table for some service ports: elements with data ("" in sets), shared chains, own chains and sets."""

    elements: dict[Element, str] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    own_chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    own_sets: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.elements)


def fragment(ports: Sequence[ServicePort], settings: RuleSettings) -> Fragment:
    """Return the elements, chains and sets of those ports that are of the settings' family."""
    result = Fragment()
    firewalls = _Firewalls(settings, result)
    for port in ports:
        if port.family == settings.family:
            _PortElements(port, settings, firewalls, result).write()
    return result


class _Firewalls:
    """The source ranges of load balancers: a chain and a set for each prefix length, which all ports of a Service share.

    At each change of any table nft reads all sets of ranges from the kernel. It does not read sets of addresses.
    """

    def __init__(self, settings: RuleSettings, out: Fragment) -> None:
        self.settings, self.out = settings, out
        self._chains: dict[tuple[str, str], str] = {}

    def chain(self, port: ServicePort) -> str:
        """Return the chain that drops whom the ranges do not name; "" where they name everybody."""
        key = port.name.namespace, port.name.name
        if key not in self._chains:
            self._chains[key] = self._write("/".join(key), port)
        return self._chains[key]

    def _write(self, service: str, port: ServicePort) -> str:
        out, given = self.out, SourceRanges.of(port.source_ranges)
        # Where the balancer's address is a local one, the node's own requests carry it as their source.
        from_node = given.contain_any(self.settings.node_addresses)
        prefixes = given.prefixes(port.load_balancer_ips if from_node else ())
        if 0 in prefixes:
            return ""
        chain, saddr = f"{chains.FIREWALL}-{_hashed(service)}", f"{family_keyword(port.family)} saddr"
        rules = []
        for length, addresses in prefixes.items():
            sources = f"{chains.SOURCES}-{_hashed(service)}-{length}"
            out.own_sets[sources] = f"typeof {saddr} ;"
            out.elements.update(dict.fromkeys(((sources, each) for each in addresses), ""))
            masked = "" if length == BITS[port.family] else f" & {mask(port.family, length)}"
            rules.append(f"{saddr}{masked} @{sources} return")
        out.own_chains[chain] = (*rules, "drop")
        return chain


def _hashed(*texts: str) -> str:
    return base64.b32encode(hashlib.sha256(" ".join(texts).encode()).digest()).decode()[:16]


class _PortElements:
    """The elements of one port, written into a fragment."""

    def __init__(self, port: ServicePort, settings: RuleSettings, firewalls: _Firewalls, out: Fragment) -> None:
        self.port, self.settings, self.firewalls, self.out = port, settings, firewalls, out
        self.protocol = port.protocol.lower()

    @functools.cached_property
    def hash(self) -> str:
        """Names what is the port's own: chains and sets with session affinity."""
        return _hashed(str(self.port.name) + self.protocol)

    def write(self) -> None:
        port = self.port
        self._without_endpoints()
        if port.affinity_seconds:
            self._affinity_chains()
        if port.internal_endpoints:
            source = "local" if port.internal_local else "cluster"
            count = len(port.internal_endpoints)
            where = [self._key(port.cluster_ip)]
            self._add_elements(
                chains.SERVICES, where, chains.TrafficPath("internal", self.protocol, source, count, count)
            )
        if port.reachable_from_outside:
            self._keep()
            if port.endpoints:
                self._outside()
        for endpoint in {*port.endpoints, *port.local_endpoints}:
            # An endpoint elsewhere meets itself here only where other nodes' pods are not masqueraded.
            if endpoint.local or port.external_local:
                self.out.elements[chains.HAIRPIN, f"{endpoint.ip} . {endpoint.ip}"] = ""

    def _outside(self) -> None:
        port = self.port
        cluster, local = len(port.endpoints), len(port.local_endpoints)
        way = chains.TrafficPath(
            "external-local" if port.external_local else "external", self.protocol, "cluster", cluster, local
        )
        addresses = [self._key(ip) for ip in (*port.external_ips, *port.load_balancer_ips)]
        self._add_elements(chains.SERVICES, addresses, way)
        if port.node_port:
            self._add_elements(chains.NODE_PORTS, [f"{self.protocol} . {port.node_port}"], way.at_node_port())
        if port.source_ranges and port.load_balancer_ips and (chain := self.firewalls.chain(port)):
            for ip in port.load_balancer_ips:
                self.out.elements[chains.FIREWALLS, self._key(ip)] = f"goto {chain}"

    def _keep(self) -> None:
        """Let no chain of others translate what is refused for want of endpoints, or a health check, to a host port."""
        port, out = self.port, self.out
        if not port.endpoints:
            for ip in (*port.external_ips, *port.load_balancer_ips):
                out.elements[chains.KEPT_SERVICES, self._key(ip)] = ""
            if port.node_port:
                out.elements[chains.KEPT_NODE_PORTS, f"{self.protocol} . {port.node_port}"] = ""
        if port.health_check_node_port:
            out.elements[chains.KEPT_NODE_PORTS, f"tcp . {port.health_check_node_port}"] = ""

    def _key(self, ip: str) -> str:
        return f"{ip} . {self.protocol} . {self.port.port}"

    def _add_elements(self, map_name: str, keys: Sequence[str], way: chains.TrafficPath) -> None:
        """Lead packets for these keys to the chain for this behaviour, and give the chain's second look-up its elements."""
        port, out = self.port, self.out
        if port.affinity_seconds:
            target = f"{way.kind.removeprefix('nodeport-')}-{self.hash}"
            for key in keys:
                out.elements[map_name, key] = f"goto {target}"
            return
        out.shared.add(way.chain)
        for key in keys:
            out.elements[map_name, key] = f"goto {way.chain}"
            without_protocol = key.replace(f"{self.protocol} . ", "")
            for name, endpoints in way.lookups(port):
                for number, endpoint in enumerate(endpoints):
                    out.elements[name, f"{without_protocol} . {number}"] = f"{endpoint.ip} . {endpoint.port}"

    def _without_endpoints(self) -> None:
        """Reject a port without any endpoint; drop where only this node has none, as its balancer expects."""
        port, out = self.port, self.out
        verdict = "drop" if port.has_endpoints_anywhere else f"goto {chains.REJECT}"
        if not port.internal_endpoints:
            out.elements[chains.NO_ENDPOINT_SERVICES, self._key(port.cluster_ip)] = verdict
        if not port.external_endpoints:
            for ip in (*port.external_ips, *port.load_balancer_ips):
                out.elements[chains.NO_ENDPOINT_SERVICES, self._key(ip)] = verdict
            if port.node_port:
                out.elements[chains.NO_ENDPOINT_NODE_PORTS, f"{self.protocol} . {port.node_port}"] = verdict

    # -- affinity -------------------------------------------------------------------------------------------------
    def _affinity_chains(self) -> None:
        """Chains of the port's own: each endpoint records its clients in the set, which is searched first."""
        port, out, settings = self.port, self.out, self.settings
        word = "ip" if port.family == 4 else "ip6"

        clients = chains.clients_set(_hashed(port.name.namespace), port.affinity_seconds)
        out.shared.add(clients)

        def balance(name: str, endpoints: Sequence[Endpoint]) -> None:
            if not endpoints:
                return
            targets = [f"goto endpoint-{self._endpoint_hash(each)}" for each in endpoints]
            rules = [
                f"{word} saddr . {self._number(each)} @{clients} {target}"
                for each, target in zip(endpoints, targets, strict=True)
            ]
            # One of all, else one of the rest: a map of them would be one more set.
            rules += [
                f"numgen random mod {count} 0 {target}" if count > 1 else target
                for count, target in zip(range(len(targets), 0, -1), targets, strict=True)
            ]
            out.own_chains[name] = tuple(rules)

        for endpoint in dict.fromkeys((*port.endpoints, *port.local_endpoints)):
            out.own_chains[f"endpoint-{self._endpoint_hash(endpoint)}"] = (
                f"update @{clients} {{ {word} saddr . {self._number(endpoint)} }}",
                f"meta l4proto {self.protocol} dnat to {endpoint}",
            )
        cluster, local = f"cluster-{self.hash}", f"local-{self.hash}"
        balance(cluster, port.endpoints)
        balance(local, port.local_endpoints)
        if port.internal_endpoints:
            out.own_chains[f"internal-{self.hash}"] = (
                *chains.mark_unless_pod(settings),
                f"goto {local if port.internal_local else cluster}",
            )
        if port.reachable_from_outside and port.endpoints:
            if port.external_local:
                out.own_chains[f"external-local-{self.hash}"] = chains.external_local(
                    settings, f"goto {cluster}", f"goto {local}" if port.local_endpoints else ""
                )
            else:
                out.own_chains[f"external-{self.hash}"] = (f"jump {chains.MARK}", f"goto {cluster}")

    def _endpoint_hash(self, endpoint: Endpoint) -> str:
        return _hashed(self.hash + str(endpoint))

    def _number(self, endpoint: Endpoint) -> str:
        """Return an expression for the endpoint's number in the set of clients: nft takes no constant in a key of several."""
        digest = hashlib.sha256((self.hash + str(endpoint)).encode()).digest()
        return f"(meta mark & 0 ^ 0x{digest[:4].hex()})"
