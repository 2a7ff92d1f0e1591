"""Fixed and shared chains of the iptables mode, and the jumps into them from the kernel's own chains.

Beside upstream's: KUBE-FIREWALL drops packets from elsewhere to 127.0.0.0/8 and is in force before route_localnet is
switched on (CVE-2020-8558). WHERRY-SERVICE-RANGE rejects packets to a cluster IP that no Service has, which
otherwise would leave the host through the default gateway; translated packets no longer have such a destination there, and
the node's own addresses (cluster DNS) are local. WHERRY-POD-MASQ masquerades packets from pods to the outside of the
cluster; WHERRY-POD-FORWARD accepts packets of pods if the FORWARD policy is DROP (Docker). WHERRY-LOCAL-NODEPORTS counts
packets to node ports on 127.0.0.1 (packet_counters.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from netproxy.settings import FixedChainSettings
from netproxy.xtables import chain_names
from netproxy.xtables.layout import Jump, Layout
from netproxy.xtables.matches import Chain, address_match, comment

CANARY_TABLES = ("mangle", "nat", "filter")


def jumps(family: int = 4) -> list[Jump]:
    """Return the jumps, in the order in which they are inserted at the heads of their chains."""
    new = "-m conntrack --ctstate NEW"

    def jump(table: str, chain: str, target: str, note: str, match: str = "") -> Jump:
        return Jump(table, chain, target, " ".join(filter(None, (match, comment(note), f"-j {target}"))))

    return [
        # Inserted first, so it is evaluated last: pods are accepted only after all of our rejecting rules.
        jump("filter", "FORWARD", chain_names.POD_FORWARD, "wherry pod traffic"),
        jump("filter", "INPUT", chain_names.EXTERNAL_SERVICES, "kubernetes externally-visible service portals", new),
        jump("filter", "FORWARD", chain_names.EXTERNAL_SERVICES, "kubernetes externally-visible service portals", new),
        jump("filter", "INPUT", chain_names.NODE_PORTS, "kubernetes health check service ports"),
        jump("filter", "FORWARD", chain_names.SERVICE_RANGE, "wherry cluster IPs without a service"),
        jump("filter", "OUTPUT", chain_names.SERVICE_RANGE, "wherry cluster IPs without a service"),
        jump("filter", "FORWARD", chain_names.SERVICES, "kubernetes service portals", new),
        jump("filter", "OUTPUT", chain_names.SERVICES, "kubernetes service portals", new),
        jump("filter", "FORWARD", chain_names.FORWARD, "kubernetes forwarding rules"),
        jump("filter", "INPUT", chain_names.PROXY_FIREWALL, "kubernetes load balancer firewall", new),
        jump("filter", "OUTPUT", chain_names.PROXY_FIREWALL, "kubernetes load balancer firewall", new),
        jump("filter", "FORWARD", chain_names.PROXY_FIREWALL, "kubernetes load balancer firewall", new),
        Jump("filter", "INPUT", chain_names.FIREWALL, f"-j {chain_names.FIREWALL}"),
        Jump("filter", "OUTPUT", chain_names.FIREWALL, f"-j {chain_names.FIREWALL}"),
        jump("nat", "OUTPUT", chain_names.SERVICES, "kubernetes service portals"),
        jump("nat", "PREROUTING", chain_names.SERVICES, "kubernetes service portals"),
        jump("nat", "POSTROUTING", chain_names.POD_MASQUERADE, "wherry pod traffic leaving the cluster"),
        jump("nat", "POSTROUTING", chain_names.POSTROUTING, "kubernetes postrouting rules"),
    ]


SHARED: Sequence[Chain] = (
    ("filter", chain_names.SERVICES),
    ("filter", chain_names.EXTERNAL_SERVICES),
    ("filter", chain_names.NODE_PORTS),
    ("filter", chain_names.PROXY_FIREWALL),
    ("nat", chain_names.SERVICES),
    ("nat", chain_names.NODE_PORTS),
)
"""Chains whose entries come from service ports; KUBE-SERVICES in nat also ends in fixed rules (see `tail`)."""


def fixed(settings: FixedChainSettings) -> dict[Chain, tuple[str, ...]]:
    """Return the chains whose rules depend only on the configuration."""
    mark = settings.mark
    chains: dict[Chain, tuple[str, ...]] = {
        ("nat", chain_names.MARK_MASQ): (f"-j MARK --set-xmark {mark}/{mark}",),
        ("nat", chain_names.POSTROUTING): (
            f"-m mark ! --mark {mark}/{mark} -j RETURN",
            # Unmark: a packet that passes the stack again, through a tunnel, must not be translated twice.
            f"-j MARK --set-xmark {mark}/0x0",
            f"{comment('kubernetes service traffic requiring SNAT')} -j MASQUERADE --random-fully",
        ),
        ("nat", chain_names.POD_MASQUERADE): tuple(pod_masquerade(settings)),
        ("filter", chain_names.FORWARD): (
            *(("-m conntrack --ctstate INVALID -j DROP",) if settings.drop_invalid else ()),
            f"{comment('kubernetes forwarding rules')} -m mark --mark {mark}/{mark} -j ACCEPT",
            f"{comment('kubernetes forwarding conntrack rule')} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        ),
        ("filter", chain_names.FIREWALL): localnet_guard(settings.family),
        ("filter", chain_names.SERVICE_RANGE): tuple(
            f"-d {cidr} -m addrtype ! --dst-type LOCAL -j REJECT --reject-with "
            + ("icmp-port-unreachable" if settings.family == 4 else "icmp6-port-unreachable")
            for cidr in settings.service_cidrs
        ),
        ("filter", chain_names.POD_FORWARD): tuple(
            rule
            for cidr in (settings.cluster_cidrs if settings.pod_cidrs else ())
            for rule in (f"-s {cidr} -j ACCEPT", f"-d {cidr} -j ACCEPT")
        ),
    }
    chains["nat", chain_names.LOCALHOST_NODE_PORTS] = (
        (f"-j {chain_names.NODE_PORTS}", comment("no node port")) if counts_localhost(settings) else ()
    )
    for table in CANARY_TABLES:
        chains[table, chain_names.CANARY] = ()
    return chains


def counts_localhost(settings: FixedChainSettings) -> bool:
    """True if node ports are served on 127.0.0.1 as on all addresses, so that packets to them are counted."""
    return settings.family == 4 and settings.localhost_node_ports and not settings.node_port_cidrs


def tail(settings: FixedChainSettings) -> dict[Chain, tuple[str, ...]]:
    """Return the rules that come last in shared chains, after all entries: those that lead to node ports."""
    note = "kubernetes service nodeports; NOTE: this must be the last rule in this chain"
    # A range names which of the node's own addresses serve node ports, never anybody else's.
    to_local = f"{comment(note)} -m addrtype --dst-type LOCAL -j {chain_names.NODE_PORTS}"
    if settings.node_port_cidrs:
        rules = [f"{address_match('-d', cidr)}{to_local}" for cidr in settings.node_port_cidrs]
    else:
        spare = ""
        if settings.family == 6:
            spare = "! -d ::1/128 "
        elif not settings.localhost_node_ports:
            spare = "! -d 127.0.0.0/8 "
        rules = [f"{spare}{to_local}"]
    if counts_localhost(settings):
        rules.insert(0, f"-d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j {chain_names.LOCALHOST_NODE_PORTS}")
    return {("nat", chain_names.SERVICES): tuple(rules)}


IPTABLES = Layout(jumps, fixed, SHARED, tail)


def localnet_guard(family: int) -> tuple[str, ...]:
    if family != 4:
        return ()
    return (
        f"! -s 127.0.0.0/8 -d 127.0.0.0/8 {comment('block incoming localnet connections')} "
        "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
    )


def pod_masquerade(settings: FixedChainSettings) -> list[str]:
    multicast = "224.0.0.0/4" if settings.family == 4 else "ff00::/8"
    random = "-j MASQUERADE --random-fully"
    rules: list[str] = []
    for pods in settings.pod_cidrs:
        rules += [f"-s {pods} -d {cidr} -j RETURN" for cidr in (*settings.cluster_cidrs, multicast)]
        rules.append(f"-s {pods} {random}")
    return rules
