"""Fixed chains of the IPVS mode, which read sets. Upstream's names and order.

nat     PREROUTING, OUTPUT - KUBE-SERVICES: marks for masquerade what addresses a Service from outside, or from no pod; accepts
        what is for an address of a Service or for a node port, so that no later rule translates it: the addresses are local,
        and the CNI plugin portmap translates what is for a local address
        POSTROUTING - KUBE-POSTROUTING: masquerades what is marked, and an endpoint that got itself
filter  INPUT, FORWARD - KUBE-PROXY-FIREWALL: not from a load balancer's source ranges: dropped
        INPUT - KUBE-IPVS-FILTER: to a Service's address but to no port of it: rejected
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from netproxy.ipset import set_name
from netproxy.settings import FixedChainSettings, RuleSettings
from netproxy.xtables import chain_names, iptables_chains
from netproxy.xtables.layout import Jump, Layout
from netproxy.xtables.matches import Chain, address_match, comment

LOAD_BALANCER, NODE_PORT = "KUBE-LOAD-BALANCER", "KUBE-NODE-PORT"
SOURCE_RANGES, FILTER, OUT_FILTER = "KUBE-SOURCE-RANGES-FIREWALL", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER"

PROTOCOLS = (("tcp", "TCP", "dst"), ("udp", "UDP", "dst"), ("sctp", "SCTP-HASH", "dst,dst"))
"""Protocol, its set of node ports, and what of a packet is looked up there."""


@dataclass(frozen=True, slots=True)
class IPVSSettings(FixedChainSettings):
    """Settings of the fixed chains with those that identify pods' traffic."""

    rules: RuleSettings = RuleSettings()  # noqa: RUF009 - frozen


def with_rules(settings: FixedChainSettings, rules: RuleSettings) -> IPVSSettings:
    """Return the settings of the fixed chains together with the rules' settings."""
    given = {name: getattr(settings, name) for name in FixedChainSettings.__slots__}
    return IPVSSettings(**given, rules=rules)


def jumps(family: int = 4) -> list[Jump]:
    """Return the jumps, in the order in which each is put at its chain's head."""

    def jump(table: str, chain: str, target: str, note: str) -> Jump:
        return Jump(table, chain, target, f"{comment(note)} -j {target}")

    return [
        jump("filter", "FORWARD", chain_names.POD_FORWARD, "wherry pod traffic"),
        jump("filter", "INPUT", NODE_PORT, "kubernetes health check rules"),
        jump("filter", "INPUT", FILTER, "kubernetes ipvs access filter"),
        jump("filter", "OUTPUT", OUT_FILTER, "kubernetes ipvs access filter"),
        jump("filter", "FORWARD", chain_names.SERVICE_RANGE, "wherry cluster IPs without a service"),
        jump("filter", "OUTPUT", chain_names.SERVICE_RANGE, "wherry cluster IPs without a service"),
        jump("filter", "FORWARD", chain_names.FORWARD, "kubernetes forwarding rules"),
        jump("filter", "INPUT", chain_names.PROXY_FIREWALL, "kube-proxy firewall rules"),
        jump("filter", "FORWARD", chain_names.PROXY_FIREWALL, "kube-proxy firewall rules"),
        Jump("filter", "INPUT", chain_names.FIREWALL, f"-j {chain_names.FIREWALL}"),
        Jump("filter", "OUTPUT", chain_names.FIREWALL, f"-j {chain_names.FIREWALL}"),
        jump("nat", "OUTPUT", chain_names.SERVICES, "kubernetes service portals"),
        jump("nat", "PREROUTING", chain_names.SERVICES, "kubernetes service portals"),
        jump("nat", "POSTROUTING", chain_names.POD_MASQUERADE, "wherry pod traffic leaving the cluster"),
        jump("nat", "POSTROUTING", chain_names.POSTROUTING, "kubernetes postrouting rules"),
    ]


def fixed(given: FixedChainSettings) -> dict[Chain, tuple[str, ...]]:
    """Return every chain with its rules."""
    settings = given if isinstance(given, IPVSSettings) else with_rules(given, RuleSettings(family=given.family))
    family, common = settings.family, iptables_chains.fixed(settings)
    refuse = "icmp-port-unreachable" if family == 4 else "icmp6-port-unreachable"

    def in_set(name: str, how: str, *, negated: bool = False) -> str:
        return f"-m set {'! ' if negated else ''}--match-set {set_name(name, family)} {how}"

    ways_in = ("KUBE-CLUSTER-IP", "KUBE-LOAD-BALANCER", "KUBE-EXTERNAL-IP", "KUBE-EXTERNAL-IP-LOCAL")
    known = tuple(f"{in_set(name, 'dst,dst')} -j RETURN" for name in ways_in)
    stray = f"-m conntrack --ctstate NEW {in_set('KUBE-IPVS-IPS', 'dst')} -j REJECT --reject-with {refuse}"
    mark, unmark, masquerade = common["nat", chain_names.POSTROUTING]
    chains: dict[Chain, tuple[str, ...]] = {
        ("nat", chain_names.SERVICES): (
            f"{in_set('KUBE-LOAD-BALANCER', 'dst,dst')} -j {LOAD_BALANCER}",
            *_mark_cluster_ips(settings, in_set("KUBE-CLUSTER-IP", "dst,dst")),
            f"{in_set('KUBE-EXTERNAL-IP', 'dst,dst')} -j {chain_names.MARK_MASQ}",
            f"-m addrtype --src-type LOCAL {in_set('KUBE-EXTERNAL-IP-LOCAL', 'dst,dst')} -j {chain_names.MARK_MASQ}",
            f"-m addrtype --dst-type LOCAL -j {NODE_PORT}",
            *(f"{in_set(name, 'dst,dst')} -j ACCEPT" for name in ways_in),
            *_accept_node_ports(settings, in_set),
            f"{in_set('KUBE-IPVS-IPS', 'dst')} -j ACCEPT",
        ),
        ("nat", LOAD_BALANCER): (
            # The client's address stays under the external policy Local, but the node's own requests need an answer.
            f"-m addrtype ! --src-type LOCAL {in_set('KUBE-LOAD-BALANCER-LOCAL', 'dst,dst')} -j RETURN",
            f"-j {chain_names.MARK_MASQ}",
        ),
        ("nat", NODE_PORT): tuple(_node_ports(in_set)),
        ("nat", chain_names.POSTROUTING): (
            f"{comment('Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose')} "
            f"{in_set('KUBE-LOOP-BACK', 'dst,dst,src')} -j MASQUERADE --random-fully",
            mark,
            unmark,
            masquerade,
        ),
        ("filter", NODE_PORT): (f"-p tcp {in_set('KUBE-HEALTH-CHECK-NODE-PORT', 'dst')} -j ACCEPT",),
        ("filter", chain_names.PROXY_FIREWALL): (f"{in_set('KUBE-LOAD-BALANCER-FW', 'dst,dst')} -j {SOURCE_RANGES}",),
        ("filter", SOURCE_RANGES): (
            f"{in_set('KUBE-LOAD-BALANCER-SOURCE-CIDR', 'dst,dst,src')} -j RETURN",
            f"{in_set('KUBE-LOAD-BALANCER-SOURCE-IP', 'dst,dst,src')} -j RETURN",
            "-j DROP",
        ),
        ("filter", FILTER): (*known, f"-p tcp {in_set('KUBE-HEALTH-CHECK-NODE-PORT', 'dst')} -j RETURN", stray),
        ("filter", OUT_FILTER): (*known, stray),
    }
    for table in iptables_chains.CANARY_TABLES:
        chains[table, chain_names.CANARY] = ()
    for chain in (
        ("nat", chain_names.MARK_MASQ),
        ("nat", chain_names.POD_MASQUERADE),
        ("filter", chain_names.FORWARD),
        ("filter", chain_names.FIREWALL),
        ("filter", chain_names.SERVICE_RANGE),
        ("filter", chain_names.POD_FORWARD),
    ):
        chains[chain] = common[chain]
    return chains


def _mark_cluster_ips(settings: IPVSSettings, to_cluster_ip: str) -> list[str]:
    rules = settings.rules
    if rules.masquerade_all:
        return [f"{to_cluster_ip} -j {chain_names.MARK_MASQ}"]
    if rules.local_interface:
        return [f"! -i {rules.local_interface} {to_cluster_ip} -j {chain_names.MARK_MASQ}"]
    return [f"! -s {cidr} {to_cluster_ip} -j {chain_names.MARK_MASQ}" for cidr in rules.local_cidrs[:1]]


def _accept_node_ports(settings: FixedChainSettings, in_set: Callable[..., str]) -> list[str]:
    to = [address_match("-d", cidr) for cidr in settings.node_port_cidrs] or [""]
    sets = [(protocol, f"KUBE-NODE-PORT-{name}", how) for protocol, name, how in PROTOCOLS]
    sets.append(("tcp", "KUBE-HEALTH-CHECK-NODE-PORT", "dst"))
    return [
        f"{each}-p {protocol} -m addrtype --dst-type LOCAL {in_set(name, how)} -j ACCEPT"
        for each in to
        for protocol, name, how in sets
    ]


def _node_ports(in_set: Callable[..., str]) -> list[str]:
    rules = []
    for protocol, name, how in PROTOCOLS:
        local = in_set(f"KUBE-NODE-PORT-LOCAL-{name}", how)
        rules.append(f"-p {protocol} -m addrtype ! --src-type LOCAL {local} -j RETURN")
        rules.append(f"-p {protocol} {in_set(f'KUBE-NODE-PORT-{name}', how)} -j {chain_names.MARK_MASQ}")
    return rules


IPVS = Layout(jumps, fixed)
