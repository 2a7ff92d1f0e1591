"""Drops packets to the cluster's DNS addresses that come neither from the node itself nor from a pod of its bridge.

The addresses are on the node's loopback device, so the node would answer queries of any machine of its network, for names of
Services and, by forwarding, for names of the node's own resolvers. The input device cannot be spoofed, a source address can.
With another pod network the pods' devices are not known here, and there is no table.

The node itself connects from these addresses: for an IPv6 Service the kernel chooses the source in the same range, which is
the DNS address. So replies to the node's own connections, which other machines send, pass.
"""

from __future__ import annotations

from collections.abc import Sequence

from netproxy.nft import static_table
from netproxy.nft.static_table import StaticTable

TABLE = "inet wherry-dns"


def body(addresses: Sequence[str], bridge: str) -> str:
    """Return nft's text for what is in the table."""
    rules = (
        f'iifname != {{ "{bridge}", "lo" }} {"ip6" if ":" in address else "ip"} daddr {address} ct state != established drop'
        for address in addresses
    )
    return static_table.chain("input", *rules)


class DNSGuard:
    """The table for these addresses; removed by `cleanup`."""

    def __init__(self, addresses: Sequence[str], bridge: str) -> None:
        self._body = body(addresses, bridge)
        self._table = StaticTable(TABLE, "cluster DNS answers machines of the node's network")

    async def verify(self) -> bool:
        """Write the table unless it is in force; return whether it is."""
        return await self._table.write(self._body)

    async def cleanup(self) -> None:
        """Remove the table, whoever wrote it."""
        await self._table.remove()
