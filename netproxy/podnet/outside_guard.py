"""Drops packets with an address of this node's pods or of the node as their source that come by other devices than theirs.

Network policies, and the rules that masquerade pods, identify a pod by its address. source_rules.py validates what pods send;
a machine of the node's network could send with any address all the same: the kernel's reverse path check is off or loose by
default in many distributions, and IPv6 has none. The input device cannot be spoofed.

Packets of this node's pods never come back with their address as the source: what leaves for machines outside, nodes among
them, is masqueraded, and translated packets of the bridge (hairpin) are forwarded without passing this hook again. Packets
are dropped as they came in, before connection tracking.

Rules take a source that is an address of the node for the node itself: those of policies in IPVS mode, and those of Services
with the policy Local. For IPv4 the kernel rejects such packets from other machines, for IPv6 it does not. Neighbour discovery
and the node's own multicast packets, which the kernel returns by the device that they leave by, are not judged. Of link-local
addresses, which different machines may have on different links, only packets to others than such are.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from netproxy.nft import static_table
from netproxy.nft.commands import family_keyword
from netproxy.nft.hooks import BEFORE_RAW
from netproxy.nft.static_table import StaticTable

TABLE = "inet wherry-outside"


def foreign(devices: Sequence[str], sources: str, family: int) -> str:
    """Return the rule that drops packets of a family from `sources` that come by other devices than these or lo."""
    names = ", ".join(f'"{each}"' for each in (*devices, "lo"))
    return f"iifname != {{ {names} }} {family_keyword(family)} saddr {sources} drop"


def body(ranges: Sequence[str], bridge: str) -> str:
    """Return nft's text for what is in the table; `ranges` are those of this node's pods."""
    networks = [ipaddress.ip_network(each) for each in ranges]
    rules = (foreign((bridge,), str(each), each.version) for each in networks)
    return static_table.chain("prerouting", *rules, *_own(bridge), priority=BEFORE_RAW)


def _own(bridge: str) -> Iterator[str]:
    """Yield the rules that drop packets from IPv6 addresses of this node."""
    for addresses in (
        "ip6 saddr != fe80::/10 ip6 daddr != ff00::/8",
        "ip6 saddr fe80::/10 ip6 daddr != { fe80::/10, ff00::/8 }",
    ):
        # What the node sends to itself in a VRF comes by that; packets of others come by another device before.
        devices = f'iifname != {{ "{bridge}", "lo" }} meta iifkind != "vrf"'
        yield f"{devices} {addresses} meta l4proto {{ tcp, udp, sctp }} fib saddr type local drop"


class OutsideGuard:
    """The table for a bridge; without ranges, until they are known, it drops nothing."""

    def __init__(self, bridge: str) -> None:
        self._bridge = bridge
        self._ranges: tuple[str, ...] = ()
        self._table = StaticTable(TABLE, "machines of the node's network can send with addresses of pods")

    async def set_node_ranges(self, cidrs: Sequence[str]) -> bool:
        """Set the ranges of this node's pods; none leaves those before. Return whether the table is in force."""
        self._ranges = tuple(cidrs) or self._ranges
        return await self.verify()

    async def verify(self) -> bool:
        """Write the table unless it is in force; return whether it is."""
        return await self._table.write(body(self._ranges, self._bridge))

    async def cleanup(self) -> None:
        """Remove the table, whoever wrote it."""
        await self._table.remove()
