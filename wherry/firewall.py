"""Detects firewalls of this machine that block the cluster's traffic, and names the command that allows it.

A packet has to pass every base chain of nf_tables on its hook: what one of them drops, no rule of ours in another can accept.
So the base chains are listed (over netlink, one question) and those judged that drop by policy, and firewalld, which refuses by
rule. Where the service proxy itself lets packets through (in the table of a chain that iptables made, in the iptables
mode) nothing needs saying. Whether rules already let the cluster's packets in is not read: then the warning can be passed over.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from netproxy import netlink
from wherry.settings import Settings

_GETCHAIN, _NEWCHAIN = (10 << 8) | 4, (10 << 8) | 3
_TABLE, _NAME, _HOOK, _POLICY = 1, 3, 4, 5
_FAMILIES = {1: "inet", 2: "ip", 10: "ip6"}
_HOOKS = {1: "input", 2: "forward"}
VXLAN_PORT = 8472


@dataclass(frozen=True, slots=True)
class Chain:
    """A base chain; `drops` by its policy."""

    family: str
    table: str
    name: str
    hook: str
    drops: bool = False


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A firewall in the way: what it does, and what to type."""

    what: str
    fix: str


def obstacles(settings: Settings) -> list[Obstacle]:
    """Return the firewall of this machine; nothing if nf_tables cannot be listed."""
    chains: list[Chain] = []
    with contextlib.suppress(OSError):
        chains = read_chains()
    ufw = any(each.name.startswith("ufw-") for each in chains) or _ufw_enabled(Path("/etc/ufw/ufw.conf"))
    return judge([each for each in chains if each.hook], settings, ufw=ufw)


def judge(chains: Iterable[Chain], settings: Settings, *, ufw: bool = False) -> list[Obstacle]:
    """Return what of these base chains hinders the cluster's packets. Pure."""
    chains = list(chains)
    if any(chain.table == "firewalld" for chain in chains):
        return [_firewalld(settings)]
    found = [
        Obstacle(f"the firewall chain {_where(chain)} drops what pods send and get", _let_forward(chain, settings))
        for chain in chains
        if _matters(chain, settings) and chain.hook == "forward" and not _served_by_proxy(chain, settings)
    ]
    into = [chain for chain in chains if _matters(chain, settings) and chain.hook == "input"]
    # nf_tables does not list legacy tables, so ufw's configuration file is read.
    if ufw and not any(not _by_iptables(chain) for chain in into):
        sources = [f"ufw allow from {cidr}" for cidr in settings.pod_cidr.split(",")]
        fix = " && ".join([*sources, *(f"ufw allow {port}" for port in _ports(settings))])
        return [*found, Obstacle("ufw drops what is for this node, unless its rules say otherwise", fix)]
    return found + [
        Obstacle(
            f"the firewall chain {_where(chain)} drops what is for this node, unless its rules say otherwise",
            _let_in(chain, settings),
        )
        for chain in into
    ]


def _firewalld(settings: Settings) -> Obstacle:
    sources = " ".join(f"--add-source={cidr}" for cidr in f"{settings.pod_cidr},{settings.service_cidr}".split(","))
    ports = " ".join(f"--add-port={port}" for port in _ports(settings))
    links = " --add-interface=cni0 --add-interface=wherry-vxlan" if settings.own_pod_network else ""
    return Obstacle(
        "firewalld refuses pods' traffic and other nodes",
        f"firewall-cmd --permanent --zone=trusted {sources}{links} && "
        f"firewall-cmd --permanent {ports} && firewall-cmd --reload",
    )


def _ranges(chain: Chain, settings: Settings) -> list[tuple[str, str]]:
    """Return the pod ranges that pass a chain, each with nft's word for its family."""
    every = [("ip6" if ":" in cidr else "ip", cidr) for cidr in settings.pod_cidr.split(",")]
    return [(word, cidr) for word, cidr in every if chain.family in ("inet", word)]


def _matters(chain: Chain, settings: Settings) -> bool:
    return chain.drops and bool(_ranges(chain, settings))


def _by_iptables(chain: Chain) -> bool:
    return chain.table == "filter" and chain.name in ("INPUT", "FORWARD")


def _served_by_proxy(chain: Chain, settings: Settings) -> bool:
    """Return whether the proxy's own rules, in the same chain, let pods' traffic through."""
    return _by_iptables(chain) and settings.own_proxy and settings.proxy_mode != "nftables"


def _where(chain: Chain) -> str:
    return f"{chain.family} {chain.table} {chain.name}"


def _let_forward(chain: Chain, settings: Settings) -> str:
    return " && ".join(
        f"nft insert rule {_where(chain)} {word} {side} {cidr} accept"
        for word, cidr in _ranges(chain, settings)
        for side in ("saddr", "daddr")
    )


def _let_in(chain: Chain, settings: Settings) -> str:
    ports = [port.split("/") for port in _ports(settings)]
    if _by_iptables(chain):
        tool = "iptables" if chain.family == "ip" else "ip6tables"
        rules = [f"{tool} -I INPUT -s {cidr} -j ACCEPT" for _, cidr in _ranges(chain, settings)]
        rules += [f"{tool} -I INPUT -p {protocol} --dport {number} -j ACCEPT" for number, protocol in ports]
    else:
        insert = f"nft insert rule {_where(chain)}"
        rules = [f"{insert} {word} saddr {cidr} accept" for word, cidr in _ranges(chain, settings)]
        rules += [f"{insert} {protocol} dport {number} accept" for number, protocol in ports]
    return " && ".join(rules)


def _ports(settings: Settings) -> list[str]:
    """Return what other machines must reach on this one, as "number/protocol". Node ports are translated before input."""
    ports = [] if settings.is_worker else [f"{settings.api_port}/tcp"]
    ports.append(f"{settings.kubelet_port}/tcp")
    if settings.own_pod_network and settings.node_routes in ("auto", "vxlan"):
        ports.append(f"{VXLAN_PORT}/udp")
    return ports


def _ufw_enabled(path: Path) -> bool:
    try:
        return any(line.strip().lower() == "enabled=yes" for line in path.read_text().splitlines())
    except OSError:
        return False


def read_chains() -> list[Chain]:
    """Return all chains of this network namespace, those without a hook with "" as theirs. OSError without nf_tables."""
    with netlink.connect(netlink.NETFILTER, timeout=2) as connection:
        return [_chain(each.body) for each in netlink.dump(connection, _GETCHAIN, bytes(4)) if each.kind == _NEWCHAIN]


def _chain(body: bytes) -> Chain:
    attributes = dict(netlink.attributes(body, 4))
    hook = dict(netlink.attributes(attributes.get(_HOOK, b""), 0))
    number = struct.unpack(">I", hook[1])[0] if 1 in hook else -1
    policy = struct.unpack(">I", attributes[_POLICY])[0] if _POLICY in attributes else 1
    return Chain(
        family=_FAMILIES.get(body[0], ""),
        table=attributes.get(_TABLE, b"").rstrip(b"\0").decode(),
        name=attributes.get(_NAME, b"").rstrip(b"\0").decode(),
        hook=_HOOKS.get(number, "other") if hook else "",
        drops=bool(hook) and policy == 0,
    )
