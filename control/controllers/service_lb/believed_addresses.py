"""Addresses of nodes that are believed. A Node's status is written by its own kubelet, and all nodes may serve what it says.

An address is believed if it is in canonical form, in no range of Services or pods, and of no older node that is Ready: one
that is not, as when its machine was installed again with another name, has none. A pod range of a Node counts for younger
Nodes, and only if it contains no address of an older one. What is not believed of a node takes nothing from the others.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from control.controllers.nodes.health import readiness
from control.controllers.service_lb import plan
from kube.api import core_v1
from kube.bounded_cache import bounded_cache
from kube.ip_addresses import Address, Network, network, reached


class IPRanges:
    """Ranges of addresses. A lookup costs the number of their prefix lengths, whatever the number of ranges."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._prefixes: dict[tuple[int, int], set[int]] = {}
        """Prefixes by the version and the number of bits behind them."""
        for text in texts:
            if (found := parse_range(text)) is not None:
                self.add(found)

    def add(self, added: Network) -> None:
        bits = added.max_prefixlen - added.prefixlen
        self._prefixes.setdefault((added.version, bits), set()).add(int(added.network_address) >> bits)

    def __contains__(self, address: Address) -> bool:
        number = int(address)
        return any(
            version == address.version and number >> bits in prefixes
            for (version, bits), prefixes in self._prefixes.items()
        )

    def __len__(self) -> int:
        """Return the number of different prefix lengths."""
        return len(self._prefixes)


@bounded_cache(16384)
def parse_range(text: str) -> Network | None:
    """Return a stored CIDR, None if it is none."""
    try:
        return network(text)
    except ValueError:
        return None


@bounded_cache(16384)
def parse_address(text: str) -> Address | str:
    """Return a node's address, or why it can be none."""
    try:
        address = reached(text)
    except ValueError:
        return "is not an IP address"
    if str(address) != text:
        return "is not in canonical form"
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        return "is not one of a machine"
    return "is not one of a machine" if address.version == 4 and address.is_reserved else address


class BelievedAddresses:
    """Takes nodes in the order of their age."""

    def __init__(self, services: IPRanges, pods: IPRanges) -> None:
        self._services, self._pods = services, pods
        self._others = IPRanges()
        """Pod ranges of nodes outside of those of the cluster."""
        self._holders: dict[Address, str] = {}
        self._numbers: dict[int, list[int]] = {4: [], 6: []}
        """The addresses of `_holders` by version, in order."""

    def add(self, node: core_v1.Node) -> tuple[list[Address], list[str]]:
        """Return the addresses of a node that are believed, and why others are not."""
        own = [found for text in _pod_ranges(node) if (found := parse_range(text)) is not None]
        believed: list[Address] = []
        refused: list[str] = []
        for text in plan.addresses_of(node) if readiness(node) == "True" else ():
            address = parse_address(text)
            why = address if isinstance(address, str) else self._doubt(address, own)
            if isinstance(address, str) or why:
                refused.append(f"{text!r} {why}")
            else:
                believed.append(address)
        for address in believed:
            self._holders[address] = str(node.metadata.name)
            bisect.insort(self._numbers[address.version], int(address))
        for each in own:
            if each.network_address not in self._pods and not self._covers(each):
                self._others.add(each)
        return believed, refused

    def _doubt(self, address: Address, own: list[Network]) -> str:
        if address in self._services:
            return "is in a range of Services"
        if address in self._pods or address in self._others or any(address in each for each in own):
            return "is in a range of pods"
        return f"is that of node {holder}" if (holder := self._holders.get(address)) else ""

    def _covers(self, pods: Network) -> bool:
        """Return whether an address that is believed is in a range."""
        numbers, first = self._numbers[pods.version], int(pods.network_address)
        index = bisect.bisect_left(numbers, first)
        return index < len(numbers) and numbers[index] <= first + pods.num_addresses - 1


def _pod_ranges(node: core_v1.Node) -> list[str]:
    return node.spec.pod_cidrs or ([node.spec.pod_cidr] if node.spec.pod_cidr else [])
