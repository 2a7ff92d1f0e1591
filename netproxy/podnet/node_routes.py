"""Plans the routes to other nodes' pods from the Nodes and this node's links: routes, neighbours, FDB entries. No I/O.

host-gw: the other node stands on a link of ours, so its address is the next hop and packets travel as they are. VXLAN:
it stands behind a router that knows no pods, so packets travel inside UDP between the nodes' addresses. Nothing is
learned or flooded there: a tunnel endpoint's address (the first of its node's pod range) and its MAC follow from the pod
range alone, so every node computes everybody's entries from the Node objects and nothing needs to be published.

A Node object can be written by its kubelet, so a range is believed only inside the cluster's own and where it overlaps
neither this node's nor one that is owned: the owner of a range stays its owner for as long as its Node object names it, and of
nodes that are new, the older one gets it. An address is believed only where it could be another machine's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from netproxy.podnet.peers import Address, Link, Network, Peer, in_cluster
from netproxy.podnet.range_owners import RangeOwners, by_priority

DEVICE = "wherry-vxlan"
OVERHEAD = {4: 50, 6: 70}
"""Bytes that VXLAN adds to a packet, by the family of the nodes' addresses: Ethernet 14, VXLAN 8, UDP 8, IP."""


class Route(NamedTuple):
    """A route to a range of pods."""

    cidr: str
    via: str
    device: str


class Neighbour(NamedTuple):
    """The MAC of a tunnel endpoint."""

    address: str
    mac: str


class FdbEntry(NamedTuple):
    """The node behind a MAC, in the forwarding database of the tunnel's device."""

    mac: str
    destination: str


@dataclass(frozen=True, slots=True)
class Tunnel:
    """This node's tunnel endpoint."""

    mac: str
    local: str
    addresses: tuple[str, ...]
    mtu: int
    port: int
    vni: int


@dataclass(frozen=True, slots=True)
class NodeRoutes:
    """The routes and entries that the kernel should hold; `unreachable` has the reason for each node without a route."""

    routes: frozenset[Route] = frozenset()
    neighbours: frozenset[Neighbour] = frozenset()
    fdb_entries: frozenset[FdbEntry] = frozenset()
    tunnel: Tunnel | None = None
    unreachable: dict[str, str] = field(default_factory=dict)
    owners: dict[Network, str] = field(default_factory=dict)
    """The UID of the node that each pod range belongs to."""
    refused: frozenset[tuple[str, Network]] = frozenset()
    """Nodes by name with pod ranges of theirs that are another's."""


def without_tunnel(planned: NodeRoutes) -> NodeRoutes:
    """Return the routes that need no tunnel. Pods behind it are unreachable then."""
    return replace(
        planned,
        routes=frozenset(route for route in planned.routes if route.device != DEVICE),
        neighbours=frozenset(),
        fdb_entries=frozenset(),
        tunnel=None,
    )


def tunnel_mac(pods: Network) -> str:
    """Return the MAC of the tunnel end of the node with this pod range; locally administered, never multicast."""
    if pods.version == 4:
        return "0a:58:" + pods.network_address.packed.hex(":")
    return "0e:" + hashlib.sha256(pods.network_address.packed).digest()[:5].hex(":")


def underlay(own: Peer, links: Sequence[Link]) -> Link | None:
    """Return the link that the node's own address is on: what travels between nodes leaves there."""
    for address in own.addresses:
        for link in links:
            if link.address == address:
                return link
    return None


def pod_mtu(mode: str, own: Peer, uplink_mtu: int) -> int:
    """Return the MTU for pods in bytes: small enough for every route that the mode may choose, now or later.

    It does not depend on which nodes there are now: a pod keeps what it started with, and pods of different MTUs on one
    bridge lose each other's larger datagrams without an error.
    """
    family = own.addresses[0].version if own.addresses else 4
    return uplink_mtu - (OVERHEAD[family] if mode in ("auto", "vxlan") else 0)


def plan(
    own: Peer,
    peers: Iterable[Peer],
    links: Sequence[Link],
    *,
    mode: str = "auto",
    cluster_cidrs: Sequence[Network] = (),
    port: int = 8472,
    vni: int = 1,
    owners: Mapping[Network, str] = MappingProxyType({}),
) -> NodeRoutes:
    """Return the routes to all other nodes' pods.

    `links` are this node's networks, without those of its own pods; `owners` is whose each range was in the last plan.
    """
    if mode == "none":
        return NodeRoutes()
    home = underlay(own, links)
    mine = _own_addresses(own, links)
    taken = RangeOwners(own)
    routes, neighbours, fdb_entries = set[Route](), set[Neighbour](), set[FdbEntry]()
    unreachable: dict[str, str] = {}
    refused: set[tuple[str, Network]] = set()
    for peer in by_priority(peers, owners):
        if peer.name == own.name or not peer.pods:
            continue
        if problem := _address_problem(peer, mine, cluster_cidrs):
            unreachable[peer.name] = problem
            continue
        for pods in peer.pods:
            if not in_cluster(pods, cluster_cidrs):
                unreachable[peer.name] = f"its pod range {pods} lies outside of the cluster's"
            elif owner := taken.take(pods, peer):
                unreachable[peer.name] = f"its pod range {pods} overlaps that of {owner}"
                refused.add((peer.name, pods))
            elif route := _direct_route(peer, pods, links, home, mode):
                routes.add(route)
            elif problem := _tunnel_problem(own, peer, home, mode):
                unreachable[peer.name] = problem
            else:
                assert home is not None
                end, mac = str(pods.network_address), tunnel_mac(peer.pods[0])
                routes.add(Route(str(pods), end, DEVICE))
                neighbours.add(Neighbour(end, mac))
                fdb_entries.add(FdbEntry(mac, str(peer.address(home.address.version))))
    wanted = home is not None and own.pods and (fdb_entries or mode == "vxlan")
    return NodeRoutes(
        frozenset(routes),
        frozenset(neighbours),
        frozenset(fdb_entries),
        _tunnel(own, home, port, vni) if home is not None and wanted else None,
        unreachable,
        taken.uids,
        frozenset(refused),
    )


def accepted_addresses(
    own: Peer, peers: Iterable[Peer], links: Sequence[Link], cluster_cidrs: Sequence[Network]
) -> frozenset[Address]:
    """Return the addresses whose packets the tunnel's port accepts: this node's, and those of peers that are believed."""
    mine, pods = _own_addresses(own, links), (*cluster_cidrs, *own.pods)
    return frozenset(own.addresses).union(
        *(peer.addresses for peer in peers if peer.name != own.name and not _address_problem(peer, mine, pods))
    )


def _own_addresses(own: Peer, links: Sequence[Link]) -> set[Address]:
    return {link.address for link in links} | set(own.addresses)


def _address_problem(peer: Peer, mine: Collection[Address], cluster_cidrs: Sequence[Network]) -> str:
    """Return why a node's addresses cannot be another machine's; "" if they can."""
    if any(address in mine for address in peer.addresses):
        return "its address is this node's own"
    if any(address in cidr for address in peer.addresses for cidr in cluster_cidrs):
        return "its address lies in the cluster's pod range"
    return ""


def _direct_route(peer: Peer, pods: Network, links: Sequence[Link], home: Link | None, mode: str) -> Route | None:
    """Return the route to a pod range over a link that its node is on; None if there is no such link or a tunnel is set."""
    near = peer.address(pods.version)
    link = _on_link(near, links, home) if near is not None and mode != "vxlan" else None
    return Route(str(pods), str(near), link.device) if link is not None else None


def _tunnel_problem(own: Peer, peer: Peer, home: Link | None, mode: str) -> str:
    """Return why there is no tunnel to a node; "" if there is one."""
    if mode == "host-gw":
        return "it is on no link of this node (host-gw alone is allowed)"
    if not own.pods:
        return "this node has no pod range yet"
    if home is None:
        return "this node's own address is on none of its devices"
    if peer.address(home.address.version) is None:
        return "it has no address that this node's can tunnel to"
    return ""


def _tunnel(own: Peer, home: Link, port: int, vni: int) -> Tunnel:
    return Tunnel(
        mac=tunnel_mac(own.pods[0]),
        local=str(home.address),
        addresses=tuple(str(pods.network_address) for pods in own.pods),
        mtu=home.mtu - OVERHEAD[home.address.version],
        port=port,
        vni=vni,
    )


def _on_link(address: Address, links: Sequence[Link], home: Link | None) -> Link | None:
    """Return the link that reaches an address without a router; that of the node's own address if there is a choice."""
    found = [link for link in links if link.ethernet and address in link.network]
    return max(found, key=lambda link: (link.network.prefixlen, link == home), default=None)
