"""Nodes and this node's links, as far as routes to pods depend on them. No I/O.

A Node object can be written by its kubelet: an address is believed only where it could be another machine's.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from kube.api import core_v1
from kube.ip_addresses import reached
from netproxy.slim_objects import SlimNode

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Link:
    """A network that this node is on: a prefix of one of its devices."""

    device: str
    address: Address
    network: Network
    mtu: int = 1500
    ethernet: bool = True


@dataclass(frozen=True, slots=True)
class Peer:
    """A node: its pod ranges, and its addresses, both one a family at most."""

    name: str
    pods: tuple[Network, ...] = ()
    addresses: tuple[Address, ...] = ()
    created: str = ""
    """Creation time of the Node object, RFC 3339 in UTC."""
    uid: str = ""

    def address(self, family: int) -> Address | None:
        return next((each for each in self.addresses if each.version == family), None)


def peer_of(node: core_v1.Node | SlimNode) -> Peer:
    """Return the pod ranges and addresses of a Node; invalid ones are ignored."""
    cidrs = node.spec.pod_cidrs or ([node.spec.pod_cidr] if node.spec.pod_cidr else [])
    texts = [each.address for each in node.status.addresses if each.type == "InternalIP"]
    pods: dict[int, Network] = {}
    addresses: dict[int, Address] = {}
    for text in cidrs:
        if (network := _network(text)) is not None:
            pods.setdefault(network.version, network)
    for text in texts:
        if (address := _address(text)) is not None:
            addresses.setdefault(address.version, address)
    meta = node.metadata
    return Peer(
        meta.name or "",
        tuple(pods.values()),
        tuple(addresses.values()),
        str(meta.creation_timestamp or ""),
        meta.uid or "",
    )


def in_cluster(pods: Network, cluster_cidrs: Sequence[Network]) -> bool:
    """Return whether a range lies in one of the cluster's, if these are known."""
    same = [cidr for cidr in cluster_cidrs if cidr.version == pods.version]
    return not cluster_cidrs or any(_within(pods, cidr) for cidr in same)


def _within(inner: Network, outer: Network) -> bool:
    return outer.prefixlen <= inner.prefixlen and inner.network_address in outer


def _network(text: str) -> Network | None:
    try:
        # The name of a link could hold anything, and a range is written into nft's and ip's input.
        return None if "%" in text else ipaddress.ip_network(text)
    except ValueError:
        return None


def _address(text: str) -> Address | None:
    try:
        found = reached(text)
    except ValueError:
        return None
    bad = found.is_loopback or found.is_link_local or found.is_multicast or found.is_unspecified
    return None if bad else found
