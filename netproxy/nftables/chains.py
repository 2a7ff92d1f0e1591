"""Maps, sets, base chains and shared chains of the table `kube-proxy`. No I/O.

The table is ours alone (upstream's name), so it is written without regard to others and removed whole. It cannot let
through what another table drops: where a FORWARD policy drops pods' traffic (Docker), use the iptables mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from netproxy.endpoints import Endpoint
from netproxy.model import ServicePort
from netproxy.nft.commands import PROTOCOLS, family_keyword
from netproxy.nft.hooks import BEFORE_DNAT, keep_destination
from netproxy.settings import FixedChainSettings, RuleSettings

TABLE = "kube-proxy"

SERVICES, NODE_PORTS = "service-ips", "service-nodeports"
CLUSTER, LOCAL = "cluster-endpoints", "local-endpoints"
NODE_PORT_CLUSTER, NODE_PORT_LOCAL = "nodeport-cluster-endpoints", "nodeport-local-endpoints"
NO_ENDPOINT_SERVICES, NO_ENDPOINT_NODE_PORTS = "no-endpoint-services", "no-endpoint-nodeports"
FIREWALLS, FIREWALL, SOURCES = "firewall-ips", "firewall", "sources"
HAIRPIN = "hairpin-connections"
KEPT_SERVICES, KEPT_NODE_PORTS = "kept-services", "kept-nodeports"
"""Ports of Services without endpoints, and of health checks: nothing may translate what is for them."""
CLIENTS = "clients"
MAX_CLIENTS = 3 << 16
"""Clients in one set, each once for each endpoint. The kernel takes 2 MiB for the set itself."""
MARK, REJECT, KEEP = "mark-for-masquerade", "reject-chain", "keep-destination"


@dataclass(frozen=True, slots=True)
class TrafficPath:
    """The path of packets to a port: kind, protocol, source of endpoints, their number for each traffic policy."""

    kind: str
    protocol: str
    source: str
    cluster: int
    local: int

    def at_node_port(self) -> TrafficPath:
        return replace(self, kind=f"nodeport-{self.kind}")

    @property
    def chain(self) -> str:
        """The chain's name determines its rules."""
        if self.kind == "internal":
            return f"internal-{self.source}-{self.protocol}-{self.cluster}"
        if self.kind.endswith("external-local"):
            return f"{self.kind}-{self.protocol}-{self.cluster}-{self.local}"
        return f"{self.kind}-{self.protocol}-{self.cluster}"

    def lookups(self, port: ServicePort) -> list[tuple[str, Sequence[Endpoint]]]:
        """Return the maps that the chain's second look-up reads, with the endpoints to put there."""
        at_node_port = self.kind.startswith("nodeport")
        cluster = f"{NODE_PORT_CLUSTER if at_node_port else CLUSTER}-{self.protocol}"
        local = f"{NODE_PORT_LOCAL if at_node_port else LOCAL}-{self.protocol}"
        if self.kind == "internal":
            return [(local, port.local_endpoints)] if self.source == "local" else [(cluster, port.endpoints)]
        if self.kind.endswith("external-local"):
            return [(cluster, port.endpoints), (local, port.local_endpoints)]
        return [(cluster, port.endpoints)]


def clients_set(hashed: str, seconds: int) -> str:
    """Return the name of the set of clients with session affinity. It determines the set."""
    return f"{CLIENTS}-{hashed}-{seconds}"


def is_set(shared: str) -> bool:
    """Return whether what Services share is a set, not a chain."""
    return shared.startswith(f"{CLIENTS}-")


def shared_set(name: str, family: int) -> str:
    """Return the declaration of a shared set from its name."""
    seconds = name.rpartition("-")[2]
    return (
        f"typeof {family_keyword(family)} saddr . meta mark ; size {MAX_CLIENTS} ; "
        f"flags dynamic,timeout ; timeout {seconds}s ;"
    )


def shared_rules(name: str, settings: RuleSettings) -> tuple[str, ...]:
    """Return the rules of a shared chain from its name."""
    family = settings.family
    match name.split("-"):
        case ["internal", source, protocol, count]:
            look_up = _translate(family, LOCAL if source == "local" else CLUSTER, protocol, int(count))
            return (*mark_unless_pod(settings), look_up)
        case ["external", protocol, count]:
            return (f"jump {MARK}", _translate(family, CLUSTER, protocol, int(count)))
        case ["nodeport", "external", protocol, count]:
            return (f"jump {MARK}", _translate(family, NODE_PORT_CLUSTER, protocol, int(count)))
        case ["external", "local", protocol, count, here]:
            maps = (CLUSTER, LOCAL)
        case ["nodeport", "external", "local", protocol, count, here]:
            maps = (NODE_PORT_CLUSTER, NODE_PORT_LOCAL)
        case _:
            raise ValueError(f"not a shared chain: {name}")
    to_local = _translate(family, maps[1], protocol, int(here)) if int(here) else ""
    return external_local(settings, _translate(family, maps[0], protocol, int(count)), to_local)


def external_local(settings: RuleSettings, to_cluster: str, to_local: str) -> tuple[str, ...]:
    """Under the external policy Local what starts in the cluster takes the cluster policy's way, the rest stays here."""
    ip = family_keyword(settings.family)
    if settings.local_interface:
        rules = [f"iifname {_pattern(settings)} {to_cluster}"]
    else:
        rules = [f"{ip} saddr {cidr} {to_cluster}" for cidr in settings.local_cidrs]
    rules += [f"fib saddr type local jump {MARK}", f"fib saddr type local {to_cluster}"]
    return (*rules, to_local or f"goto {KEEP}")


def mark_unless_pod(settings: RuleSettings) -> tuple[str, ...]:
    if settings.masquerade_all:
        return (f"jump {MARK}",)
    if settings.local_interface:
        return (f"iifname != {_pattern(settings)} jump {MARK}",)
    if settings.local_cidrs:
        return (f"{family_keyword(settings.family)} saddr != {settings.local_cidrs[0]} jump {MARK}",)
    return ()


def _pattern(settings: RuleSettings) -> str:
    name = settings.local_interface
    return f'"{name[:-1]}*"' if name.endswith("+") else f'"{name}"'


def _translate(family: int, map_name: str, protocol: str, count: int) -> str:
    """The second look-up. One map a protocol: nft 1.0.6 reads the type "ip daddr . th dport" back from the kernel
    as a conflict, and one of "tcp dport" silently confines a rule that does not itself name the protocol to TCP."""
    ip = family_keyword(family)
    key = f"{protocol} dport" if map_name.startswith("nodeport") else f"{ip} daddr . {protocol} dport"
    return (
        f"meta l4proto {protocol} dnat {ip} addr . port to {key} . numgen random mod {count} map @{map_name}-{protocol}"
    )


def declarations(family: int) -> dict[str, str]:
    """Return the maps and sets by name, as "map NAME { ... }" or "set NAME { ... }" without elements."""
    ip = family_keyword(family)
    address, port, number = f"{ip} daddr", "meta l4proto . th dport", "numgen random mod 65536"
    declared = {
        SERVICES: f"map {SERVICES} {{ typeof {address} . {port} : verdict ; }}",
        NODE_PORTS: f"map {NODE_PORTS} {{ typeof {port} : verdict ; }}",
        NO_ENDPOINT_SERVICES: f"map {NO_ENDPOINT_SERVICES} {{ typeof {address} . {port} : verdict ; }}",
        NO_ENDPOINT_NODE_PORTS: f"map {NO_ENDPOINT_NODE_PORTS} {{ typeof {port} : verdict ; }}",
        FIREWALLS: f"map {FIREWALLS} {{ typeof {address} . {port} : verdict ; }}",
        HAIRPIN: f"set {HAIRPIN} {{ typeof {ip} saddr . {ip} daddr ; }}",
        KEPT_SERVICES: f"set {KEPT_SERVICES} {{ typeof {address} . {port} ; }}",
        KEPT_NODE_PORTS: f"set {KEPT_NODE_PORTS} {{ typeof {port} ; }}",
    }
    for protocol in PROTOCOLS:
        for kind in (CLUSTER, LOCAL, NODE_PORT_CLUSTER, NODE_PORT_LOCAL):
            key = f"{protocol} dport" if kind.startswith("nodeport") else f"{address} . {protocol} dport"
            name = f"{kind}-{protocol}"
            declared[name] = f"map {name} {{ typeof {key} . {number} : {address} . {protocol} dport ; }}"
    return declared


HOOKS = {
    "firewall-prerouting": "type filter hook prerouting priority -110 ;",
    "firewall-output": "type filter hook output priority -110 ;",
    "nat-prerouting": f"type nat hook prerouting priority {BEFORE_DNAT} ;",
    "nat-output": f"type nat hook output priority {BEFORE_DNAT} ;",
    "nat-postrouting": "type nat hook postrouting priority 100 ;",
    "filter-input": "type filter hook input priority 0 ;",
    "filter-forward": "type filter hook forward priority 0 ;",
    "filter-output": "type filter hook output priority 0 ;",
}
"""Our chains on the kernel's hooks."""


def fixed(settings: FixedChainSettings, rules: RuleSettings) -> dict[str, tuple[str, ...]]:
    """Return the chains whose rules depend on the configuration alone, in an order in which each names earlier ones."""
    family, mark = settings.family, settings.mark
    ip = family_keyword(family)
    key = f"{ip} daddr . meta l4proto . th dport"
    loopback = "127.0.0.0/8" if family == 4 else "::1"
    if settings.node_port_cidrs:
        named = f"{ip} daddr {{ {', '.join(settings.node_port_cidrs)} }} "
    else:
        named = f"{ip} daddr != {loopback} "
    node_ports = f"fib daddr type local {named}"
    refuse = "icmp port-unreachable" if family == 4 else "icmpv6 port-unreachable"
    reject = f"reject with {refuse}"
    multicast = "224.0.0.0/4" if family == 4 else "ff00::/8"
    inside = ", ".join((*settings.cluster_cidrs, multicast))
    check_services = (
        f"ct state new {key} vmap @{NO_ENDPOINT_SERVICES}",
        f"ct state new {node_ports}meta l4proto . th dport vmap @{NO_ENDPOINT_NODE_PORTS}",
        *(f"{ip} daddr {cidr} fib daddr type != local {reject}" for cidr in settings.service_cidrs),
    )
    firewall = (f"ct state new {key} vmap @{FIREWALLS}",)
    to_services = (
        f"{key} vmap @{SERVICES}",
        f"{node_ports}meta l4proto . th dport vmap @{NODE_PORTS}",
        f"{key} @{KEPT_SERVICES} goto {KEEP}",
        f"{node_ports}meta l4proto . th dport @{KEPT_NODE_PORTS} goto {KEEP}",
    )
    unmark = f"{hex(0xFFFFFFFF ^ int(mark, 16))}"
    return {
        REJECT: (reject,),
        MARK: (f"meta mark set meta mark | {mark}",),
        KEEP: (keep_destination(family),),
        "firewall-check": firewall,
        "services": to_services,
        "endpoints-check": check_services,
        "firewall-prerouting": ("jump firewall-check",),
        "firewall-output": ("jump firewall-check",),
        "nat-prerouting": ("jump services",),
        "nat-output": ("jump services",),
        "nat-postrouting": (
            f"ct status dnat {ip} saddr . {ip} daddr @{HAIRPIN} masquerade fully-random",
            f"meta mark & {mark} == {mark} meta mark set meta mark & {unmark} masquerade fully-random",
            *(f"{ip} saddr {cidr} {ip} daddr != {{ {inside} }} masquerade fully-random" for cidr in settings.pod_cidrs),
        ),
        "filter-input": ("jump endpoints-check",),
        "filter-forward": (
            *(("ct state invalid drop",) if settings.drop_invalid else ()),
            "jump endpoints-check",
        ),
        "filter-output": ("jump endpoints-check",),
    }
