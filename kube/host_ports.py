"""Ports that pods take of their node: each can be used once for an address and protocol; 0.0.0.0 stands for every address."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

HostPort = tuple[str, str, int]
"""Host address, protocol, port."""
Ports = dict[tuple[str, int], set[str]]
"""The addresses on which a (protocol, port) is taken."""
EVERY_ADDRESS = "0.0.0.0"


def by_number(ports: Iterable[HostPort]) -> Ports:
    """Return the addresses on which each (protocol, port) is taken."""
    found: Ports = {}
    for address, protocol, port in ports:
        found.setdefault((protocol, port), set()).add(address)
    return found


def clash(wanted: Iterable[HostPort], taken: Mapping[tuple[str, int], Collection[str]]) -> bool:
    """True if one of the ports is taken."""
    for address, protocol, port in wanted:
        addresses = taken.get((protocol, port))
        if addresses and (address == EVERY_ADDRESS or EVERY_ADDRESS in addresses or address in addresses):
            return True
    return False


def overlap(some: Ports, others: Ports) -> bool:
    """True if two pods want the same port; the cost is that of the one with fewer ports."""
    for key in some.keys() & others.keys():
        one, other = some[key], others[key]
        if EVERY_ADDRESS in one or EVERY_ADDRESS in other or not one.isdisjoint(other):
            return True
    return False
