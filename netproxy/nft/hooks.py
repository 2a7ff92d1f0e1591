"""The order of our chains and those of other programs."""

from __future__ import annotations

from netproxy.nft.commands import family_keyword

BEFORE_DNAT = -101
"""The priority of chains that translate before those of other programs.

The kernel calls the nat chains of all tables, iptables' too, in the order of their priority, and of equal priority the later
registered first. The first translation of a connection counts. iptables and the CNI plugin portmap have -100 (dstnat).
"""


BEFORE_RAW = -310
"""The priority of chains that judge packets as they came in: before connection tracking, and before raw (-300), where other
programs exclude packets from it."""

AFTER_IPVS = 101
"""The priority of chains that judge packets as the node's sockets get them. The kernel's ip_vs translates at hook `input` (99),
after most filters, and what it sends to the node itself goes on from there."""


def keep_destination(family: int) -> str:
    """Return the statement that translates to the address that a packet has, so that no later chain translates it."""
    ip, everything = family_keyword(family), "0.0.0.0/0" if family == 4 else "::/0"
    return f"dnat {ip} prefix to {ip} daddr map {{ {everything} : {everything} }}"
