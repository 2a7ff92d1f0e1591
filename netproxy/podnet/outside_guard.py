"""Drops packets that have an address of this node's pods as their source and come neither from the bridge nor the node itself.

Network policies, and the rules that masquerade pods, identify a pod by its address. source_rules.py validates what pods send;
a machine of the node's network could send with any address all the same: the kernel's reverse path check is off or loose by
default in many distributions, and IPv6 has none. The input device cannot be spoofed.

Packets of this node's pods never come back with their address as the source: what leaves for machines outside, nodes among
them, is masqueraded, and translated packets of the bridge (hairpin) are forwarded without passing this hook again. Packets
are dropped as they came in, before connection tracking.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

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
    return static_table.chain("prerouting", *rules, priority=BEFORE_RAW)


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
