"""Parts of rules in the words in which iptables-save prints them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Chain = tuple[str, str]
"""(table, chain)."""


def comment(text: str) -> str:
    return f'-m comment --comment "{text}"'


def host_match(ip: str) -> str:
    return f"{ip}/128" if ":" in ip else f"{ip}/32"


def address_match(option: str, cidr: str) -> str:
    """Return "-s cidr " or "-d cidr "; iptables prints nothing for the whole address space."""
    network = ipaddress.ip_network(cidr, strict=False)
    return "" if network.prefixlen == 0 else f"{option} {network} "


def contains_any(cidrs: Iterable[str], addresses: Iterable[str]) -> bool:
    """Return whether any of the ranges, of which there may be thousands, has any of the addresses."""
    networks = [ipaddress.ip_network(cidr, strict=False) for cidr in cidrs]
    return any(address in network for address in map(ipaddress.ip_address, addresses) for network in networks)


def full_mask(family: int) -> str:
    return "255.255.255.255" if family == 4 else "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"


def probability(left: int) -> str:
    """Return 1/left as iptables prints it: the kernel keeps it in units of 2^-31."""
    return f"{round((1 << 31) / left) / (1 << 31):.11f}"
