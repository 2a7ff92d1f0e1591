"""Parts of rules in the words in which iptables-save prints them."""

from __future__ import annotations

import ipaddress

Chain = tuple[str, str]
"""(table, chain)."""


def comment(text: str) -> str:
    return f'-m comment --comment "{text}"'


def host_match(ip: str) -> str:
    return f"{ip}/128" if ":" in ip else f"{ip}/32"


def address_match(option: str, cidr: str) -> str:
    """Return "-s cidr " or "-d cidr "; iptables prints nothing for the whole address space."""
    return canonical_match(option, str(ipaddress.ip_network(cidr, strict=False)))


def canonical_match(option: str, cidr: str) -> str:
    """Do as `address_match` for a CIDR in canonical form."""
    return "" if cidr.endswith("/0") else f"{option} {cidr} "


def full_mask(family: int) -> str:
    return "255.255.255.255" if family == 4 else "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"


def probability(left: int) -> str:
    """Return 1/left as iptables prints it: the kernel keeps it in units of 2^-31."""
    return f"{round((1 << 31) / left) / (1 << 31):.11f}"
