"""The table that lets a pod send from its own addresses alone: MAC, IPv4, IPv6, and those it names in ARP and discovery.

Frames from a pod's port are looked at as they enter the bridge, before anything else of the kernel sees them: what others
believe of addresses, network policies and Services is then never based on a borrowed one. A frame of a port that is not in
the sets passes: ports of other programs, and a pod's in the milliseconds until its result was read. No I/O.

Link-local addresses serve neighbour discovery alone, for network policies know only pods' own addresses. Router
advertisements, redirects and answers of DHCP are no pod's to send (CVE-2020-10749).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

from netproxy.nftables import commands
from netproxy.nftables.commands import Held
from netproxy.podnet.cni_results import PodPort

FAMILY, NAME = "bridge", "wherry-sources"
TABLE = f"{FAMILY} {NAME}"
HOOKS = {
    "prerouting": "type filter hook prerouting priority -300; policy accept;",
    "input": "type filter hook input priority -300; policy accept;",
}
"""Before br_netfilter hands frames to the rules for IP packets. Frames to link-local groups pass `input` alone."""
SETS = {
    "ports": "type ifname",
    "macs": "type ifname . ether_addr",
    "addresses4": "type ifname . ipv4_addr",
    "addresses6": "type ifname . ipv6_addr",
    "targets": "typeof iifname . @th,64,128",
}
"""By name; `targets` are addresses that a port may advertise as neighbours: the 128 bits after ICMPv6's first 8 bytes."""
_DISCOVERY = "nd-neighbor-solicit, nd-router-solicit, mld-listener-report, mld-listener-done, mld2-listener-report"
CHAINS: dict[str, tuple[str, ...]] = {
    "prerouting": (
        "iifname != @ports accept",
        "iifname . ether saddr != @macs drop",
        "ether type arp goto said-in-arp",
        "ether type ip goto sent-by-ipv4",
        "ether type ip6 goto sent-by-ipv6",
        "drop",
    ),
    "input": (
        # LLDP, LACP and the like (IEEE 802.1D): the bridge learns their senders, and the node takes in what they carry.
        "iifname @ports ether daddr & ff:ff:ff:ff:ff:f0 == 01:80:c2:00:00:00 drop",
    ),
    "said-in-arp": (
        "iifname . arp saddr ether != @macs drop",
        "arp operation request arp saddr ip 0.0.0.0 accept",  # asks whether an address is free (RFC 5227)
        "iifname . arp saddr ip != @addresses4 drop",
    ),
    "sent-by-ipv4": (
        "udp sport 67 udp dport 68 drop",
        "icmp type redirect drop",
        "iifname . ip saddr != @addresses4 drop",
    ),
    "sent-by-ipv6": (
        "icmpv6 type { nd-router-advert, nd-redirect } drop",
        "icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert } ip6 hoplimit != 255 drop",  # RFC 4861
        "udp sport 547 udp dport 546 drop",
        "icmpv6 type nd-neighbor-advert iifname . @th,64,128 != @targets drop",
        f"ip6 saddr :: icmpv6 type {{ {_DISCOVERY} }} accept",  # before an address is in use (RFC 4862)
        "iifname . ip6 saddr != @addresses6 drop",
        f"icmpv6 type {{ nd-neighbor-advert, {_DISCOVERY} }} accept",
        "ip6 saddr fe80::/10 drop",
        "ip6 daddr fe80::/10 drop",
    ),
}


def link_local(mac: str) -> ipaddress.IPv6Address:
    """Return the link-local address that the kernel makes of a MAC (RFC 4291, modified EUI-64)."""
    octets = bytes.fromhex(mac.replace(":", ""))
    identifier = bytes((octets[0] ^ 2,)) + octets[1:3] + b"\xff\xfe" + octets[3:]
    return ipaddress.IPv6Address(b"\xfe\x80" + bytes(6) + identifier)


def elements_of(port: PodPort) -> Held:
    """Return the elements that let a port send."""
    device = port.device
    found: Held = {("ports", device): "", ("macs", f"{device} . {port.mac}"): ""}
    for address in (link_local(port.mac), *map(ipaddress.ip_address, port.addresses)):
        found[f"addresses{address.version}", f"{device} . {address}"] = ""
        if address.version == 6:
            found["targets", f"{device} . 0x{address.packed.hex()}"] = ""
    return found


class SourceRules:
    """The table's desired state."""

    table = TABLE

    def __init__(self) -> None:
        self._ports: dict[str, PodPort] = {}

    @property
    def elements(self) -> Held:
        return {key: data for port in self._ports.values() for key, data in elements_of(port).items()}

    def change(self, ports: Mapping[str, PodPort]) -> str:
        """Take in all ports, by file, and return the text that leads there from the last ones."""
        before, self._ports = self.elements, dict(ports)
        lines = commands.change_elements(TABLE, before, self.elements)
        return "\n".join(lines) + "\n" if lines else ""

    def reconcile(self, held: Held, held_chains: Iterable[str], held_sets: Iterable[str]) -> str:
        """Return the text that turns what the kernel holds into what it should hold."""
        present = set(held_sets)
        lines = [f"add table {TABLE}"]
        lines += [f"add set {TABLE} {name} {{ {kind}; }}" for name, kind in SETS.items() if name not in present]
        lines += commands.change_elements(TABLE, {key: "" for key in held if key[0] in SETS}, self.elements)
        lines += commands.write_chains(TABLE, CHAINS, HOOKS)
        lines += commands.delete_chains(TABLE, [name for name in held_chains if name not in CHAINS])
        lines += [f"delete set {TABLE} {name}" for name in present if name not in SETS]
        return "\n".join(lines) + "\n"
