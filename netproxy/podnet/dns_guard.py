"""Drops packets to the cluster's DNS addresses that come neither from the node itself nor from a pod of its bridge, and lets no
other rule translate them.

The addresses are on the node's loopback device, so the node would answer queries of any machine of its network, for names of
Services and, by forwarding, for names of the node's own resolvers. The input device cannot be spoofed, a source address can.
With another pod network the pods' devices are not known here, and there is no table.

The node itself connects from these addresses: for an IPv6 Service the kernel chooses the source in the same range, which is
the DNS address. So replies to the node's own connections, which other machines send, pass.

The plugin portmap translates what is for any local address, so the host port 53 of a pod would take the queries. The kernel
calls the nat chains of all tables in the order of their priority until one has translated a connection: here, to the address
that it has. To accept it would not be enough. An address that is not local, because other programs answer, is left to them.
"""

from __future__ import annotations

from collections.abc import Sequence

from netproxy.nft import static_table
from netproxy.nft.hooks import BEFORE_DNAT
from netproxy.nft.static_table import StaticTable

TABLE = "inet wherry-dns"


def body(addresses: Sequence[str], bridge: str) -> str:
    """Return nft's text for what is in the table."""
    ip = {address: "ip6" if ":" in address else "ip" for address in addresses}
    drops = (
        f'iifname != {{ "{bridge}", "lo" }} {ip[address]} daddr {address} ct state != established drop'
        for address in addresses
    )
    keeps = [
        f"fib daddr type local {ip[address]} daddr {address} dnat {ip[address]} to {address}" for address in addresses
    ]
    nat = (static_table.chain(hook, *keeps, kind="nat", priority=BEFORE_DNAT) for hook in ("prerouting", "output"))
    return "".join((static_table.chain("input", *drops), *nat))


class DNSGuard:
    """The table for these addresses; removed by `cleanup`."""

    def __init__(self, addresses: Sequence[str], bridge: str) -> None:
        self._body = body(addresses, bridge)
        self._table = StaticTable(
            TABLE, "cluster DNS answers machines of the node's network, and host ports of pods can take its queries"
        )

    async def verify(self) -> bool:
        """Write the table unless it is in force; return whether it is."""
        return await self._table.write(self._body)

    async def cleanup(self) -> None:
        """Remove the table, whoever wrote it."""
        await self._table.remove()
