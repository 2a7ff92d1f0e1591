"""Rules that let a pod send from its own addresses alone: MAC, IPv4, IPv6, and those in ARP and neighbour discovery.

Frames from a pod's port are looked at as they enter the bridge, before anything else of the kernel sees them: what others
believe of addresses, network policies and Services is then never based on a borrowed one. No I/O.

A port that is not in the sets is another program's, or a pod's whose result is not read yet (for milliseconds, or while this
role is down). It may send what is nobody's among the addresses of this node's pods (stranger_rules.py). Only ports that may be
those of a result that cannot be read are closed: such a one never will be known.

What is forwarded to a pod's port must be for one of its addresses too. Policies judge addresses, and a frame with the pod's MAC
gets to it whatever address is inside: one of another network in the pod, say, on which it listens as well.

ARP and neighbour discovery are accepted in the forms that are listed, for a match that needs a field which a frame
lacks counts as none, and a rule that drops would let the frame by. Link-local addresses serve discovery alone, for network
policies know only pods' own addresses. Router advertisements, redirects and answers of DHCP are no pod's to send
(CVE-2020-10749).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence

from netproxy.nft import commands
from netproxy.nft.table import Elements
from netproxy.podnet import stranger_rules
from netproxy.podnet.cni_results import BridgePort
from netproxy.podnet.stranger_rules import ADVERT, LISTENER, READABLE, SOLICIT

FAMILY, NAME = "bridge", "wherry-sources"
TABLE = f"{FAMILY} {NAME}"
HOOKS = {
    "prerouting": "type filter hook prerouting priority -300; policy accept;",
    "input": "type filter hook input priority -300; policy accept;",
    "forward": "type filter hook forward priority -300; policy accept;",
}
"""Before br_netfilter hands frames to the rules for IP packets. Frames to link-local groups pass `input` alone."""
SETS = {
    "ports": "type ifname",
    "closed": "type ifname",
    "macs": "type ifname . ether_addr",
    "addresses4": "type ifname . ipv4_addr",
    "addresses6": "type ifname . ipv6_addr",
    "broadcasts": "type ifname . ipv4_addr",
    "targets": "typeof iifname . @th,64,128",
    "options": "typeof iifname . @th,192,64",
    "taken-macs": "type ether_addr",
    "taken4": "type ipv4_addr",
    "taken6": "type ipv6_addr",
    "taken-targets": "typeof @th,64,128",
}
"""By name. `targets` are addresses that a port may request or advertise as neighbours: the 128 bits after ICMPv6's first 8
bytes. `options` are the link-layer options of discovery that a port may send. `taken…` are all pods' and their gateways'."""
CHAINS: dict[str, tuple[str, ...]] = {
    "prerouting": (
        "iifname @closed drop",
        'iifname != @ports meta iifkind "veth" goto sent-by-strangers',
        "iifname != @ports accept",
        "iifname . ether saddr != @macs drop",
        "ether type arp goto said-in-arp",
        "ether type ip goto sent-by-ipv4",
        *(f"ether type ip6 {match} goto sent-by-ipv6" for match in READABLE),
        "drop",
    ),
    "input": (
        "iifname @closed drop",
        # LLDP, LACP and the like (IEEE 802.1D): the bridge learns their senders, and the node receives what they carry.
        "iifname @ports ether daddr & ff:ff:ff:ff:ff:f0 == 01:80:c2:00:00:00 drop",
    ),
    "forward": (
        # Services were translated before.
        "oifname != @ports accept",
        "ether type arp accept",
        "oifname . ip daddr @addresses4 accept",
        "oifname . ip daddr @broadcasts accept",
        "ip daddr { 224.0.0.0/4, 255.255.255.255 } accept",
        "oifname . ip6 daddr @addresses6 accept",
        "ip6 daddr ff00::/8 accept",
        "drop",
    ),
    "said-in-arp": (
        # Linux takes ARP of IEEE 802's hardware type for Ethernet's, and these rules read fields at Ethernet's places.
        "arp htype != 1 drop",
        "arp ptype != ip drop",
        "arp hlen != 6 drop",
        "arp plen != 4 drop",
        "iifname . arp saddr ether != @macs drop",
        # Asks whether its own address is free; who requests another's keeps that pod from taking it (RFC 5227).
        "arp operation request arp saddr ip 0.0.0.0 iifname . arp daddr ip @addresses4 accept",
        "arp operation { request, reply } iifname . arp saddr ip @addresses4 accept",
        "drop",
    ),
    "sent-by-ipv4": (
        "ip daddr 127.0.0.0/8 drop",  # the node takes them where a plugin has set route_localnet
        "udp dport 68 drop",  # DHCP's clients look at no source port
        "icmp type { redirect, router-advertisement } drop",
        "iifname . ip saddr @addresses4 accept",
        "drop",
    ),
    "sent-by-ipv6": (
        "ip6 daddr ::1 drop",
        "icmpv6 type { nd-router-advert, nd-redirect } drop",
        "icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert } goto said-in-discovery",
        "udp dport 546 drop",
        f"ip6 saddr :: icmpv6 type {{ {LISTENER} }} accept",  # before an address is in use (RFC 4862)
        "iifname . ip6 saddr != @addresses6 drop",
        f"icmpv6 type {{ {LISTENER} }} accept",
        "ip6 saddr fe80::/10 drop",
        "ip6 daddr fe80::/10 drop",
        "accept",
    ),
    "said-in-discovery": (
        "ip6 hoplimit != 255 drop",  # RFC 4861
        # One option at most, in a place that is known: the first link-layer option is not always the one that counts.
        "ip6 nexthdr != icmpv6 drop",
        "ip6 saddr :: icmpv6 type nd-router-solicit ip6 length 8 accept",
        # A pod that requests another's tentative address keeps it from being used (RFC 4862). 8 bytes: a nonce (RFC 7527).
        f"ip6 saddr :: {SOLICIT} ip6 length {{ 24, 32 }} iifname . @th,64,128 @targets accept",
        "iifname . ip6 saddr != @addresses6 drop",
        "icmpv6 type nd-router-solicit ip6 length 8 accept",
        "icmpv6 type nd-router-solicit ip6 length 16 iifname . @th,64,64 @options accept",
        f"{ADVERT} iifname . @th,64,128 != @targets drop",
        "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } ip6 length 24 accept",
        "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } ip6 length 32 iifname . @th,192,64 @options accept",
        "drop",
    ),
}


def link_local(mac: str) -> ipaddress.IPv6Address:
    """Return the link-local address that the kernel makes of a MAC (RFC 4291, modified EUI-64)."""
    octets = bytes.fromhex(mac.replace(":", ""))
    identifier = bytes((octets[0] ^ 2,)) + octets[1:3] + b"\xff\xfe" + octets[3:]
    return ipaddress.IPv6Address(b"\xfe\x80" + bytes(6) + identifier)


def elements_of(port: BridgePort) -> Elements:
    """Return the elements that let a port send, and keep ports that are not in the table from sending as it."""
    device = port.device
    mac = port.mac.replace(":", "")
    found: Elements = {("ports", device): "", ("macs", f"{device} . {port.mac}"): "", ("taken-macs", port.mac): ""}
    for kind in (1, 2):  # source and target link-layer address, in units of eight bytes: 1 (RFC 4861)
        found["options", f"{device} . {int(f'{kind:02x}01{mac}', 16)}"] = ""
    own = (link_local(port.mac), *map(ipaddress.ip_address, port.addresses))
    for address in own:
        found[f"addresses{address.version}", f"{device} . {address}"] = ""
        if address.version == 6:
            found["targets", f"{device} . 0x{address.packed.hex()}"] = ""
    for broadcast in port.broadcasts:
        found["broadcasts", f"{device} . {broadcast}"] = ""
    for address in (*own, *map(ipaddress.ip_address, port.gateways)):
        found[f"taken{address.version}", str(address)] = ""
        if address.version == 6:
            found["taken-targets", f"0x{address.packed.hex()}"] = ""
    return found


class SourceRules:
    """The table's desired state."""

    table, hooks = TABLE, HOOKS
    declarations = {name: f"set {name} {{ {kind}; }}" for name, kind in SETS.items()}  # noqa: RUF012

    def __init__(self) -> None:
        self._ports: dict[str, BridgePort] = {}
        self._closed: tuple[str, ...] = ()
        self.ranges: Sequence[str] = ()
        """The ranges of addresses of this node's pods."""

    @property
    def chains(self) -> dict[str, tuple[str, ...]]:
        return CHAINS | stranger_rules.chains(self.ranges)

    @property
    def size(self) -> int:
        return len(self._ports)

    @property
    def elements(self) -> Elements:
        found = {key: data for port in self._ports.values() for key, data in elements_of(port).items()}
        return found | {("closed", device): "" for device in self._closed}

    def change(self, ports: Mapping[str, BridgePort], closed: Iterable[str] = ()) -> str:
        """Store all ports, by file, and devices that may send nothing; return the text for nft that makes the change."""
        before = self.elements
        self._ports, self._closed = dict(ports), tuple(closed)
        lines = commands.change_elements(TABLE, before, self.elements)
        return "\n".join(lines) + "\n" if lines else ""
