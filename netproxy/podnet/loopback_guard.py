"""Drops packets of the pods' bridge to the node's loopback addresses, 127.0.0.0/8 and ::1.

The plugin portmap sets `route_localnet` of the bridge for the first pod with a host port, and leaves it. From then on the
kernel delivers what pods send to 127.0.0.1 to services that listen there because nobody else should reach them. Packets are
judged as they came in, before connection tracking: replies to the node's own connections get such an address only there.
"""

from __future__ import annotations

from netproxy.nft import static_table
from netproxy.nft.hooks import BEFORE_RAW
from netproxy.nft.static_table import StaticTable

TABLE = "inet wherry-loopback"


def body(bridge: str) -> str:
    """Return nft's text for what is in the table."""
    rules = (f'iifname "{bridge}" {to} drop' for to in ("ip daddr 127.0.0.0/8", "ip6 daddr ::1"))
    return static_table.chain("prerouting", *rules, priority=BEFORE_RAW)


class LoopbackGuard:
    """The table for a bridge."""

    def __init__(self, bridge: str) -> None:
        self._body = body(bridge)
        self._table = StaticTable(TABLE, "pods can reach the node's loopback addresses")

    async def verify(self) -> bool:
        """Write the table unless it is in force; return whether it is."""
        return await self._table.write(self._body)

    async def cleanup(self) -> None:
        """Remove the table, whoever wrote it."""
        await self._table.remove()
