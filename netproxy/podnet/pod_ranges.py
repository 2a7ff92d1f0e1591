"""Owner of each pod range by the Node objects, under the rules of the routes (range_owners.py).

A pod's status is written by its node, which could name any address. An address in another node's range is not believed: it
would make the pod a peer of policies in place of the pod that has the address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence

from kube.informer import Change, Informer
from netproxy.podnet import peers
from netproxy.podnet.peers import Network, Peer
from netproxy.podnet.range_owners import RangeOwners, by_priority
from netproxy.slim_objects import SlimNode


class PodRanges:
    """The pod ranges of all nodes."""

    def __init__(self, name: str, nodes: Informer[SlimNode], cluster_cidrs: Sequence[str] = ()) -> None:
        """`name` is this node's."""
        self._name = name
        self._handlers: list[Callable[[], None]] = []
        self._cidrs = tuple(ipaddress.ip_network(each) for each in cluster_cidrs)
        self._peers: dict[str, Peer] = {}
        self._uids: dict[Network, str] = {}
        self._owners: RangeOwners | None = None
        """None while they are to be found again."""
        nodes.subscribe(self._changed)

    def subscribe(self, handler: Callable[[], None]) -> None:
        """Call a handler each time a range gets another owner, or none."""
        self._handlers.append(handler)

    def node_of(self, ip: str) -> str:
        """Return the node in whose range an address is; "" if it is in no known node's."""
        if self._owners is None:
            self._owners = self._find()
        return self._owners.owner(ipaddress.ip_address(ip))

    def _changed(self, change: Change[SlimNode]) -> None:
        name = change.new.metadata.name or ""
        before = self._peers.pop(name, None)
        if change.type != "DELETED":
            self._peers[name] = peers.peer_of(change.new)
        after = self._peers.get(name)
        if _identity(before) != _identity(after):
            self._owners = None
            for handler in self._handlers:
                handler()

    def _find(self) -> RangeOwners:
        owners = RangeOwners(self._peers.get(self._name, Peer(self._name)))
        for peer in by_priority(self._peers.values(), self._uids):
            for pods in peer.pods:
                if peer.name != self._name and peers.in_cluster(pods, self._cidrs):
                    owners.take(pods, peer)
        self._uids = owners.uids
        return owners


def _identity(peer: Peer | None) -> tuple[object, ...]:
    return (peer.pods, peer.uid) if peer is not None and peer.pods else ()
