"""Programs of this node that listen on ports, which load balancers at the node's own addresses leave to them.

A load balancer at the node's own address would take the packets of a daemon that listens on the same port, sshd's or a
database's. The kernel is asked about each such port (socket_lookup.py), in a thread. A kernel without sock_diag has lists in
/proc/net only, of which the beginning is read: TCP sockets that listen come first there, and UDP sockets without a peer count.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import struct
import sys
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from netproxy import netlink, rtnetlink_tables, socket_lookup
from netproxy.families import family_of
from netproxy.socket_lookup import Query

log = logging.getLogger(__name__)
_LISTEN, _UNCONNECTED = "0A", "07"
_LISTS = (
    ("tcp", "TCP", _LISTEN),
    ("tcp6", "TCP", _LISTEN),
    ("udp", "UDP", _UNCONNECTED),
    ("udp6", "UDP", _UNCONNECTED),
)
_MOST = 4096
"""Lines that are read of each list in /proc/net at most."""
_TIMEOUT = 2.0
"""Seconds that the kernel may take for an answer."""


class Socket(NamedTuple):
    """The address and port of a load balancer at which a program may listen."""

    address: str
    protocol: str
    port: int


async def in_use(sockets: Collection[Socket]) -> frozenset[Socket]:
    """Return those that a program listens on, in this network namespace; OSError if the kernel does not answer.

    A protocol other than TCP and UDP is in use by none.
    """
    with contextlib.ExitStack() as opened:
        diag = opened.enter_context(netlink.connect(socket_lookup.PROTOCOL, timeout=_TIMEOUT))
        route = opened.enter_context(netlink.connect(netlink.ROUTE, timeout=_TIMEOUT, strict=True))
        connections = opened.pop_all()
    lists = Path(f"/proc/self/task/{threading.get_native_id()}/net")

    def run() -> frozenset[Socket]:
        with connections:
            return find(sockets, diag, route, lists)

    return await asyncio.to_thread(run)


def find(sockets: Collection[Socket], diag: socket.socket, route: socket.socket, lists: Path) -> frozenset[Socket]:
    """Return the sockets in use by two netlink sockets, or by lists in a folder where the kernel has no sock_diag."""
    asked = [each for each in sockets if each.protocol in socket_lookup.PROTOCOLS and family_of(each.address)]
    listed = {each for each in {each.protocol for each in asked} if not socket_lookup.is_supported(each)}
    found: set[Socket] = set()
    if listed:
        listeners = read_listeners(lists)
        ports = {address: listeners.ports_at(address) for address in {each.address for each in asked}}
        found.update(each for each in asked if each.protocol in listed and each[1:] in ports[each.address])
    devices = rtnetlink_tables.devices_of(route, {each.address for each in asked})

    def queries() -> Iterator[Query]:
        for address, protocol, port in asked:
            if protocol not in listed:
                # A socket that is bound to a device takes what comes from that device alone.
                for device in devices.get(address) or (0,):
                    yield Query(protocol, address, port, device)

    found.update(Socket(each.address, each.protocol, each.port) for each in socket_lookup.taken(diag, queries()))
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Listeners:
    """Sockets as (protocol, address, port); a socket for all IPv6 addresses is taken for one of IPv4's too."""

    sockets: frozenset[tuple[str, str, int]] = frozenset()

    def ports_at(self, address: str) -> set[tuple[str, int]]:
        """Return the protocols and ports of an address whose packets would reach a program of the node."""
        reached = (address, "::") if ":" in address else (address, "0.0.0.0", "::")
        return {(protocol, port) for protocol, ip, port in self.sockets if ip in reached}


def read_listeners(directory: Path) -> Listeners:
    """Return the sockets in the kernel's lists that take packets; a list that cannot be read counts as empty."""
    found: set[tuple[str, str, int]] = set()
    for name, protocol, state in _LISTS:
        try:
            with (directory / name).open() as lines:
                next(lines, None)
                for line, _ in zip(lines, range(_MOST), strict=False):
                    fields = line.split(maxsplit=4)
                    if fields[3] == state:
                        address, _, port = fields[1].rpartition(":")
                        found.add((protocol, _address(address), int(port, 16)))
                    elif protocol == "TCP":
                        break
        except FileNotFoundError:
            continue  # a kernel without IPv6
        except (OSError, ValueError, IndexError) as error:
            log.warning("sockets that listen on this node cannot be read from %s: %s", directory / name, error)
    return Listeners(frozenset(found))


def _address(text: str) -> str:
    """Read an address as the kernel prints it, in words of 32 bits by the machine's own order of bytes."""
    order = "<" if sys.byteorder == "little" else ">"
    words = [int(text[i : i + 8], 16) for i in range(0, len(text), 8)]
    packed = struct.pack(f"{order}{len(words)}I", *words)
    if len(packed) == 4:
        return socket.inet_ntop(socket.AF_INET, packed)
    address = ipaddress.IPv6Address(packed)
    return str(address.ipv4_mapped or address)
