"""Owners of pod ranges: assigns each range to one node. No I/O."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping

from netproxy.podnet.peers import Address, Network, Peer


class RangeOwners:
    """Pod ranges that belong to a node, none of which overlaps another: sorted, by IP version."""

    def __init__(self, own: Peer) -> None:
        self._ranges: dict[int, list[tuple[int, int, str]]] = {4: [], 6: []}
        self.uids: dict[Network, str] = {}
        """The UID of each range's node."""
        for pods in own.pods:
            self.take(pods, own)

    def take(self, pods: Network, peer: Peer) -> str:
        """Give a range to a node unless it overlaps another's; return that one's name then, or ""."""
        first, last = int(pods.network_address), int(pods.broadcast_address)
        ranges = self._ranges[pods.version]
        place = bisect.bisect_left(ranges, (first,))
        for start, end, name in ranges[max(place - 1, 0) : place + 1]:
            if start <= last and first <= end:
                return name
        ranges.insert(place, (first, last, peer.name))
        self.uids[pods] = peer.uid
        return ""

    def owner(self, address: Address) -> str:
        """Return the node in whose range an address is; "" if it is in none."""
        ranges, number = self._ranges[address.version], int(address)
        place = bisect.bisect_right(ranges, number, key=lambda each: each[0])
        if place and number <= ranges[place - 1][1]:
            return ranges[place - 1][2]
        return ""


def by_priority(nodes: Iterable[Peer], owners: Mapping[Network, str]) -> list[Peer]:
    """Return nodes in the order in which they get ranges: those whose ranges were theirs before first, then older ones."""
    return sorted(nodes, key=lambda each: (not established(each, owners), each.created, each.name))


def established(peer: Peer, owners: Mapping[Network, str]) -> bool:
    """Return whether all ranges of a node were its own before; `owners` are UIDs."""
    return all(owners.get(pods) == peer.uid for pods in peer.pods)
