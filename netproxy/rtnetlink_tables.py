"""Reads links, addresses, routes, neighbours and FDB entries from the kernel's dumps: only the attributes that are used.

Every function blocks and takes a socket with the strict filter (netlink.py); what an older kernel does not filter is passed
over here.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
from collections.abc import Collection
from typing import NamedTuple

from netproxy import netlink

MAIN_TABLE, PERMANENT, UP = 254, 0x80, 1
"""RT_TABLE_MAIN, NUD_PERMANENT, IFF_UP."""
GET_LINK, GET_ADDRESS, GET_ROUTE, GET_NEIGHBOUR = 18, 22, 26, 30
LOOPBACK, NO_ARP = 0x8, 0x80
"""Flags of links."""
_ETHERNET, _BRIDGE = 1, 7
_IFINFO, _IFADDR, _ROUTE, _NEIGHBOUR = (
    struct.Struct("=BxHiII"),
    struct.Struct("=BBBBi"),
    struct.Struct("=BBBBBBBBI"),
    struct.Struct("=BxxxiHBB"),
)
_SKIP_STATISTICS = struct.pack("=HHI", 8, 29, 8)
"""IFLA_EXT_MASK with RTEXT_FILTER_SKIP_STATS."""
_MAC, _NAME, _MTU, _MASTER, _LINK_INFO = 1, 3, 4, 10, 18
_KIND, _DATA = 1, 2
"""Attributes of a link, and within IFLA_LINKINFO."""


class Link(NamedTuple):
    """A network device; `data` has the attributes of its kind."""

    number: int
    name: str
    flags: int
    ethernet: bool
    mac: str
    mtu: int
    master: int
    kind: str
    data: dict[int, bytes]

    @property
    def up(self) -> bool:
        return bool(self.flags & UP)


class Address(NamedTuple):
    """An address of a device; `pointopoint` if it has a peer's address of its own."""

    device: int
    address: str
    prefix_length: int
    scope: int
    pointopoint: bool


class Route(NamedTuple):
    """A route of the main table with one next hop; `via` is "" and `device` 0 where it has none."""

    cidr: str
    via: str
    device: int


class Neighbour(NamedTuple):
    """The MAC of an address; for an FDB entry, the address behind a MAC."""

    address: str
    mac: str


def _parsed(packed: bytes) -> str:
    return str(ipaddress.ip_address(packed))


def _number(packed: bytes) -> int:
    return int(struct.unpack_from("=I", packed)[0]) if len(packed) >= 4 else 0


def _link(message: netlink.Message) -> Link:
    _, hardware, index, flags, _ = _IFINFO.unpack_from(message.body)
    found = dict(netlink.attributes(message.body, _IFINFO.size))
    info = dict(netlink.attributes(found.get(_LINK_INFO, b""), 0))
    return Link(
        index,
        found.get(_NAME, b"").rstrip(b"\0").decode(),
        flags,
        hardware == _ETHERNET,
        found.get(_MAC, b"").hex(":"),
        _number(found.get(_MTU, b"")),
        _number(found.get(_MASTER, b"")),
        info.get(_KIND, b"").rstrip(b"\0").decode(),
        dict(netlink.attributes(info.get(_DATA, b""), 0)),
    )


def link(connection: socket.socket, device: str | int) -> Link | None:
    """Return a device by its name or number; None if there is none."""
    body = _IFINFO.pack(0, 0, device if isinstance(device, int) else 0, 0, 0) + _SKIP_STATISTICS
    if isinstance(device, str):
        if len(device.encode()) > 15:
            return None
        name = device.encode() + b"\0"
        body += struct.pack("=HH", 4 + len(name), _NAME) + name
    connection.send(netlink.request(GET_LINK, netlink.REQUEST, body))
    (answer,) = netlink.messages(connection.recv(1 << 17))
    if answer.kind != netlink.ERROR:
        return _link(answer)
    error = netlink.error_of(answer)
    if error is None or error.errno == errno.ENODEV:
        return None
    raise error


def ports(connection: socket.socket, master: int) -> list[Link]:
    """Return the devices that are ports of a bridge."""
    body = _IFINFO.pack(0, 0, 0, 0, 0) + _SKIP_STATISTICS + struct.pack("=HHI", 8, _MASTER, master)
    found = map(_link, netlink.dump(connection, GET_LINK, body))
    return [each for each in found if each.master == master]


def addresses(connection: socket.socket, device: int = 0, *, any_scope: bool = False) -> list[Address]:
    """Return the addresses of global or of any scope, in the order of devices; of all devices or of one."""
    found = []
    for message in netlink.dump(connection, GET_ADDRESS, _IFADDR.pack(0, 0, 0, 0, device)):
        _, length, _, scope, index = _IFADDR.unpack_from(message.body)
        if (scope == 0 or any_scope) and device in (0, index):
            values = dict(netlink.attributes(message.body, _IFADDR.size))
            # IFA_ADDRESS (1) is the peer's if there is one; IFA_LOCAL (2) is missing for most of IPv6.
            own = values.get(2, values.get(1, b""))
            if own:
                found.append(Address(index, _parsed(own), length, scope, values.get(1, own) != own))
    return sorted(found, key=lambda each: each.device)


def devices_of(connection: socket.socket, wanted: Collection[str]) -> dict[str, list[int]]:
    """Return the numbers of the devices that have an address, by address; in the IPVS mode there are thousands of others."""
    packed = {ipaddress.ip_address(each).packed: each for each in wanted}
    found: dict[str, list[int]] = {}

    def keep(message: netlink.Message) -> bool:
        values = dict(netlink.attributes(message.body, _IFADDR.size))
        address = packed.get(values.get(2, values.get(1, b"")))
        if address is not None:
            found.setdefault(address, []).append(_IFADDR.unpack_from(message.body)[4])
        return False

    if packed:
        netlink.dump_once(connection, GET_ADDRESS, _IFADDR.pack(0, 0, 0, 0, 0), keep)
    return found


def routes(connection: socket.socket, family: int, protocol: int) -> list[tuple[Route, bytes]]:
    """Return the main table's routes of an IP version (4 or 6) and protocol, each with the body of its message.

    With protocol 0 those of every protocol.
    """
    number = socket.AF_INET if family == 4 else socket.AF_INET6
    found = []
    try:
        messages = netlink.dump(connection, GET_ROUTE, _ROUTE.pack(number, 0, 0, 0, MAIN_TABLE, protocol, 0, 0, 0))
    except FileNotFoundError:  # a network namespace without any route so far has no table
        return []
    for message in messages:
        _, length, _, _, table, by, _, _, flags = _ROUTE.unpack_from(message.body)
        if table == MAIN_TABLE and protocol in (0, by) and not flags & 0x200:  # RTM_F_CLONED
            values = dict(netlink.attributes(message.body, _ROUTE.size))
            # RTA_DST, RTA_GATEWAY, RTA_OIF
            to = _parsed(values.get(1, bytes(4 if family == 4 else 16)))
            via = _parsed(values[5]) if 5 in values else ""
            found.append((Route(f"{to}/{length}", via, _number(values.get(4, b""))), message.body))
    return found


def neighbours(connection: socket.socket, device: int) -> list[Neighbour]:
    """Return the permanent entries of a device."""
    return _neighbours(connection, 0, device, PERMANENT)


def fdb_entries(connection: socket.socket, device: int) -> list[Neighbour]:
    """Return the entries of a tunnel's device that have a destination."""
    return _neighbours(connection, _BRIDGE, device, 0)


def _neighbours(connection: socket.socket, family: int, device: int, state: int) -> list[Neighbour]:
    # NDA_IFINDEX (8) is the filter; NDA_DST is 1, NDA_LLADDR 2.
    body = _NEIGHBOUR.pack(family, 0, 0, 0, 0) + struct.pack("=HHI", 8, 8, device)
    found = []
    for message in netlink.dump(connection, GET_NEIGHBOUR, body):
        _, index, actual, _, _ = _NEIGHBOUR.unpack_from(message.body)
        if index == device and actual & state == state:
            values = dict(netlink.attributes(message.body, _NEIGHBOUR.size))
            if 1 in values and 2 in values:
                found.append(Neighbour(_parsed(values[1]), values[2].hex(":")))
    return found
