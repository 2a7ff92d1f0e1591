"""Reads and writes the routes to other nodes in the kernel, by netlink in a thread.

Wherry's entries are identified by the protocol number of routes and by the tunnel's device. Entries are added in the order
in which packets use them and removed in the reverse order, so no packet uses an incomplete path.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
from collections.abc import Collection
from typing import NamedTuple

from netproxy import netlink, rtnetlink_tables, sysctl
from netproxy import rtnetlink_requests as requests
from netproxy.podnet import cluster_routes, tunnel_guard
from netproxy.podnet.cluster_routes import PROTOCOL
from netproxy.podnet.node_routes import DEVICE, FdbEntry, Neighbour, NodeRoutes, Route, Tunnel
from netproxy.podnet.peers import Link

_GONE = (errno.ENOENT, errno.ESRCH, errno.ENODEV)
"""Errors of a deletion of what is not there."""


class Change(NamedTuple):
    """An entry to replace or to delete."""

    verb: str
    entry: Route | Neighbour | FdbEntry

    def __str__(self) -> str:
        match self.entry:
            case Route(cidr, via, device):
                return f"route {self.verb} {cidr} via {via} dev {device}"
            case Neighbour(address, mac):
                return f"neigh {self.verb} {address} lladdr {mac}"
            case FdbEntry(mac, destination):
                return f"fdb {self.verb} {mac} dst {destination}"


async def read_links(ignored: Collection[str]) -> list[Link]:
    """Return the networks of the devices that are up; `ignored` devices are the cluster's own."""
    return await netlink.in_thread(lambda connection: _read_links(connection, ignored))


def _read_links(connection: socket.socket, ignored: Collection[str]) -> list[Link]:
    links = []
    devices: dict[int, rtnetlink_tables.Link | None] = {}
    for each in rtnetlink_tables.addresses(connection):
        # An address with a peer of its own says nothing of a link.
        if each.pointopoint:
            continue
        if each.device not in devices:
            devices[each.device] = rtnetlink_tables.link(connection, each.device)
        device = devices[each.device]
        if device is None or not device.up or device.name in ignored or device.flags & rtnetlink_tables.LOOPBACK:
            continue
        ethernet = device.ethernet and not device.flags & rtnetlink_tables.NO_ARP
        address = ipaddress.ip_address(each.address)
        network = ipaddress.ip_network(f"{address}/{each.prefix_length}", strict=False)
        links.append(Link(device.name, address, network, device.mtu, ethernet and network.num_addresses > 1))
    return links


async def read_routes(families: Collection[int]) -> NodeRoutes:
    """Return the entries of Wherry in the kernel."""
    return await netlink.in_thread(lambda connection: _read_routes(connection, families))


def _read_routes(connection: socket.socket, families: Collection[int]) -> NodeRoutes:
    routes, names = set(), dict[int, str]()
    for family in families:
        for route, _ in rtnetlink_tables.routes(connection, family, PROTOCOL):
            if route.via:
                if route.device not in names:
                    device = rtnetlink_tables.link(connection, route.device)
                    names[route.device] = device.name if device else ""
                routes.add(Route(route.cidr, route.via, names[route.device]))
    tunnel = rtnetlink_tables.link(connection, DEVICE)
    if tunnel is None:
        return NodeRoutes(frozenset(routes))
    neighbours = rtnetlink_tables.neighbours(connection, tunnel.number)
    fdb_entries = rtnetlink_tables.fdb_entries(connection, tunnel.number)
    return NodeRoutes(
        frozenset(routes),
        frozenset(Neighbour(each.address, each.mac) for each in neighbours),
        frozenset(FdbEntry(each.mac, each.address) for each in fdb_entries),
    )


def difference(actual: NodeRoutes, wanted: NodeRoutes) -> list[Change]:
    """Return what changes one state into the other, in order."""
    gone, come = list[Change](), list[Change]()
    kept = {route.cidr: route for route in wanted.routes}
    for route in sorted(actual.routes - wanted.routes):
        new = kept.get(route.cidr)
        # A route is replaced in one step, but that IPv6 refuses a tunnel's end that another device still leads to.
        if new is None or (":" in route.cidr and new.device == DEVICE != route.device):
            gone.append(Change("del", route))
    addresses = {each.address for each in wanted.neighbours}
    for neighbour in sorted(actual.neighbours - wanted.neighbours):
        if neighbour.address not in addresses:
            gone.append(Change("del", neighbour))
    macs = {each.mac for each in wanted.fdb_entries}
    for entry in sorted(actual.fdb_entries - wanted.fdb_entries):
        if entry.mac not in macs:
            gone.append(Change("del", entry))
    come += [Change("replace", each) for each in sorted(wanted.fdb_entries - actual.fdb_entries)]
    come += [Change("replace", each) for each in sorted(wanted.neighbours - actual.neighbours)]
    come += [Change("replace", each) for each in sorted(wanted.routes - actual.routes)]
    return gone + come


async def change(actual: NodeRoutes, wanted: NodeRoutes) -> int:
    """Apply the difference to the kernel; return the number of changed entries. OSError if any is refused; all are tried."""
    changes = difference(actual, wanted)
    if changes:
        await netlink.in_thread(lambda connection: _apply(connection, changes))
    return len(changes)


def _apply(connection: socket.socket, changes: Collection[Change]) -> None:
    devices = {name: netlink.interface_index(name) for name in {_device(each) for each in changes}}
    # Without a device the kernel would choose one.
    sent = [each for each in changes if devices[_device(each)]]
    results = netlink.change(connection, (_request(each, devices[_device(each)]) for each in sent))
    refused = [(each, OSError(errno.ENODEV, "No such device")) for each in changes if not devices[_device(each)]]
    refused += [(each, error) for each, error in zip(sent, results, strict=True) if error is not None]
    refused = [(each, error) for each, error in refused if each.verb != "del" or error.errno not in _GONE]
    if refused:
        what, error = refused[0]
        more = f", and {len(refused) - 1} more" if len(refused) > 1 else ""
        raise OSError(error.errno, f"{what}: {error.strerror}{more}")


def _device(change: Change) -> str:
    return change.entry.device if isinstance(change.entry, Route) else DEVICE


def _request(change: Change, device: int) -> bytes:
    delete = change.verb == "del"
    match change.entry:
        case Route(cidr, via, name):
            if delete:
                return requests.delete_route(cidr, via, device, PROTOCOL)
            return requests.replace_route(cidr, device, PROTOCOL, via=via, onlink=name == DEVICE)
        case Neighbour(address, mac):
            return (
                requests.delete_neighbour(address, device)
                if delete
                else requests.replace_neighbour(address, mac, device)
            )
        case FdbEntry(mac, destination):
            encode = requests.delete_fdb_entry if delete else requests.replace_fdb_entry
            return encode(mac, destination, device)


async def remove(families: Collection[int] = (4, 6)) -> None:
    """Remove all routes to other nodes, and the tunnel."""
    await change(await read_routes(families), NodeRoutes())
    await ensure_tunnel(None)
    await tunnel_guard.remove()


async def ensure_tunnel(tunnel: Tunnel | None) -> bool:
    """Configure the tunnel's device; return whether it was recreated, which removes its entries. OSError if refused."""
    if tunnel is None:
        existed = bool(netlink.interface_index(DEVICE))
        await cluster_routes.remove_link(DEVICE)
        return existed
    return await netlink.in_thread(lambda connection: _ensure_tunnel(connection, tunnel))


def _ensure_tunnel(connection: socket.socket, tunnel: Tunnel) -> bool:
    existing = rtnetlink_tables.link(connection, DEVICE)
    made = existing is None or not _same(existing, tunnel)
    if made:
        if existing is not None:
            netlink.apply(connection, [requests.delete_link(existing.number)], _GONE)
        data = requests.vxlan(tunnel.vni, tunnel.local, tunnel.port)
        netlink.apply(connection, [requests.add_link(DEVICE, "vxlan", tunnel.mtu, mac=tunnel.mac, data=data)])
        existing = rtnetlink_tables.link(connection, DEVICE)
        if existing is None:
            raise OSError(errno.ENODEV, f"the device {DEVICE} was deleted by others")
        # No link-local address: nobody there would answer the questions that come with one. A kernel without IPv6 refuses it.
        netlink.change(connection, [requests.without_link_local_address(existing.number)])
    assert existing is not None
    if made or existing.mtu != tunnel.mtu or not existing.up:
        netlink.apply(connection, [requests.set_up(existing.number, tunnel.mtu)])
    # What comes by the tunnel may be answered by a link where the nodes' netmasks differ.
    sysctl.ensure(f"net/ipv4/conf/{DEVICE}/rp_filter", "2")
    there, wanted = (
        {each.address for each in rtnetlink_tables.addresses(connection, existing.number)},
        set(tunnel.addresses),
    )
    changes = [requests.delete_address(each, existing.number) for each in sorted(there - wanted)]
    netlink.apply(connection, changes, (errno.EADDRNOTAVAIL,))
    changes = [requests.replace_address(each, existing.number, no_dad=":" in each) for each in sorted(wanted - there)]
    netlink.apply(connection, changes)
    return made


def _same(existing: rtnetlink_tables.Link, tunnel: Tunnel) -> bool:
    # IFLA_VXLAN_ID is 1, _LOCAL 4, _LEARNING 7, _PORT 15, _LOCAL6 17.
    local = ipaddress.ip_address(tunnel.local)
    expected = {
        1: struct.pack("=I", tunnel.vni),
        7: b"\0",
        15: struct.pack(">H", tunnel.port),
        4 if local.version == 4 else 17: local.packed,
    }
    return (existing.kind, existing.mac) == ("vxlan", tunnel.mac) and expected.items() <= existing.data.items()
