"""Watches rtnetlink(7) notifications for changes of our routes, neighbours and devices by others.

Only the kind of notification, the protocol and the device are read: what it means is settled by a comparison. Pods that come
and go cause many notices of other devices, which are passed over here: 1 000 of them take 1 ms, which is why they are not
decoded by pyroute2, where they take 140 ms of the event loop. The kernel drops notices when we are slow and
says so; it gives none for IPv4 routes that go with their device. A comparison now and then makes up for both.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Collection
from typing import Protocol

from netproxy import netlink
from netproxy.netlink import interface_index
from netproxy.podnet.cluster_routes import PROTOCOL

NEWLINK, DELLINK, NEWADDR, DELADDR = 16, 17, 20, 21
NEWROUTE, DELROUTE, NEWNEIGH, DELNEIGH = 24, 25, 28, 29
REPLACED = 0x100
"""NLM_F_REPLACE: the new route stands where another was."""
GROUPS = 0x1 | 0x10 | 0x40 | 0x100 | 0x400
"""RTMGRP_LINK, IPV4_IFADDR, IPV4_ROUTE, IPV6_IFADDR, IPV6_ROUTE."""
NEIGHBOURS = 3
"""RTNLGRP_NEIGH, joined only while there is a tunnel: hosts are always busy with neighbours."""
SOL_NETLINK, JOIN, LEAVE = 270, 1, 2


def concerns(kind: int, flags: int, body: bytes, links: Collection[int], tunnel: int) -> bool:
    """Return whether a notice may mean that something of ours is no longer so; devices go by their numbers."""
    if len(body) < 8:
        return False
    device: int = struct.unpack_from("=i", body, 4)[0]
    if kind in (NEWLINK, DELLINK):
        return device in links or device == tunnel
    if kind in (NEWADDR, DELADDR):
        return body[3] == 0  # an address of global scope
    if kind == DELROUTE:
        return body[5] == PROTOCOL
    if kind == NEWROUTE:
        return bool(flags & REPLACED) and body[5] != PROTOCOL
    return kind in (NEWNEIGH, DELNEIGH) and device == tunnel


class Changed(Protocol):
    """Is called for each notice; `links`: this node's links may have changed, rather than what netproxy wrote."""

    def __call__(self, *, links: bool) -> None: ...


class RouteMonitor:
    """Calls back for each notice that concerns us, from `start` on."""

    def __init__(self, changed: Changed) -> None:
        self._changed = changed
        self._socket: socket.socket | None = None
        self._links: frozenset[int] = frozenset()
        self._tunnel = 0

    def start(self) -> None:
        """Listen in the network namespace of the calling thread."""
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
        self._socket.bind((0, GROUPS))
        asyncio.get_running_loop().add_reader(self._socket, self._read)

    def follow(self, links: Collection[str], tunnel: str) -> None:
        """Say which devices concern us; `tunnel` is "" while there is none."""
        self._links = frozenset(filter(None, map(interface_index, links)))
        number = interface_index(tunnel) if tunnel else 0
        if self._socket is not None and bool(number) != bool(self._tunnel):
            self._socket.setsockopt(SOL_NETLINK, JOIN if number else LEAVE, NEIGHBOURS)
        self._tunnel = number

    def close(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _read(self) -> None:
        assert self._socket is not None
        while True:
            try:
                for kind, flags, body in netlink.messages(self._socket.recv(1 << 16)):
                    if concerns(kind, flags, body, self._links, self._tunnel):
                        self._changed(links=kind < NEWROUTE)
            except BlockingIOError:
                return
            except OSError:  # notices were lost, or cut off
                self._changed(links=True)
                return
