"""Rules for veths of the bridge with unknown pods: another program's, or of a pod whose CNI result is not read yet.

They may send what is nobody's among the addresses of this node's pods: neither from the address of a known pod or its gateway,
nor from one that a pod of another node, a node or a machine outside has, by which others' network policies would know them.
Without a range of pods they may send nothing but discovery from link-local addresses. No I/O.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

SOLICIT, ADVERT = "icmpv6 type nd-neighbor-solicit", "icmpv6 type nd-neighbor-advert"
LISTENER = "mld-listener-report, mld-listener-done, mld2-listener-report"
READABLE = ("frag frag-off != 0", "@th,0,8 & 0x0 == 0x0")
"""Match IPv6 packets whose ports or type of message can be read, and fragments after the first, which have none. The second
match holds for every packet with a byte behind its extension headers: a first fragment that ends within them, which RFC 7112
forbids, would pass rules that drop."""
_NAME = "sent-by-strangers"


def chains(ranges: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the chains by name, for the ranges of this node's pods."""
    networks = [ipaddress.ip_network(each) for each in ranges]
    four = [each for each in networks if isinstance(each, ipaddress.IPv4Network)]
    six = [each for each in networks if isinstance(each, ipaddress.IPv6Network)]
    return {
        _NAME: (
            # The rules below judge these alone, and receivers read through VLAN tags of ID 0 (IEEE 802.1Q).
            "ether type != { ip, arp, ip6 } drop",
            "ether saddr @taken-macs drop",
            f"ether type arp goto {_NAME}-arp",
            *(f"ether type ip6 {match} goto {_NAME}-ipv6" for match in READABLE),
            "ip daddr 127.0.0.0/8 drop",
            "udp dport 68 drop",
            "icmp type { redirect, router-advertisement } drop",
            "ip saddr @taken4 drop",
            *(f"ip saddr {each} accept" for each in four),
            "drop",
        ),
        f"{_NAME}-arp": (
            "arp htype != 1 drop",  # as of known pods
            "arp ptype != ip drop",
            "arp hlen != 6 drop",
            "arp plen != 4 drop",
            "arp saddr ether @taken-macs drop",
            "arp saddr ip @taken4 drop",
            "arp saddr ip 0.0.0.0 arp daddr ip @taken4 drop",
            *(f"arp saddr ip {each} accept" for each in four),
            *(f"arp saddr ip 0.0.0.0 arp daddr ip {each} accept" for each in four),
            "drop",
        ),
        f"{_NAME}-ipv6": (
            "ip6 daddr ::1 drop",
            "icmpv6 type { nd-router-advert, nd-redirect } drop",
            "udp dport 546 drop",
            "ip6 saddr @taken6 drop",
            *_discovery(six),
            "ip6 saddr { ::, fe80::/10 } drop",
            "ip6 daddr fe80::/10 drop",
            *(f"ip6 saddr {each} accept" for each in six),
            "drop",
        ),
    }


def _discovery(ranges: Sequence[ipaddress.IPv6Network]) -> Iterator[str]:
    local = ipaddress.IPv6Network("fe80::/10")
    yield f"{ADVERT} @th,64,128 @taken-targets drop"
    yield f"ip6 saddr :: {SOLICIT} @th,64,128 @taken-targets drop"
    for target in (local, *ranges):
        yield f"ip6 saddr :: {SOLICIT} {_about(target)} accept"
        for source in (local, *ranges):
            yield f"ip6 saddr {source} {ADVERT} {_about(target)} accept"
    yield f"{ADVERT} drop"
    yield f"ip6 saddr :: icmpv6 type {{ nd-router-solicit, {LISTENER} }} accept"
    yield f"ip6 saddr {local} icmpv6 type {{ nd-router-solicit, nd-neighbor-solicit, {LISTENER} }} accept"
    for source in ranges:
        yield f"ip6 saddr {source} {SOLICIT} accept"


def _about(target: ipaddress.IPv6Network) -> str:
    """Match messages of discovery about an address of a range: the 128 bits after ICMPv6's first 8 bytes."""
    return f"@th,64,128 & 0x{target.netmask.packed.hex()} == 0x{target.network_address.packed.hex()}"
