"""Finds out which sockets of this node would take packets, by sock_diag(7): one lookup in the kernel's hash table for each.

Nothing is listed. The time of a list depends on all sockets of the node, which every local account can open by the ten
thousand, and /proc/net/udp takes even the square of their number: the kernel goes through its table anew for every few
kilobytes. The kernel looks a socket up as it does for a packet that arrives, so it decides which one has an address: for
example, a socket for IPv6 addresses only has none of IPv4.

The requests are one fixed struct (inet_diag_req_v2), which is packed here: pyroute2's module for it imports its sockets, too.
"""

from __future__ import annotations

import errno
import functools
import itertools
import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple

from netproxy import netlink

PROTOCOL = 4
"""NETLINK_SOCK_DIAG."""
PROTOCOLS = {"TCP": socket.IPPROTO_TCP, "UDP": socket.IPPROTO_UDP}
_BY_FAMILY = 20
"""SOCK_DIAG_BY_FAMILY."""
_REQUEST = struct.Struct(">BBBBIHH16s16s")
_REST = struct.Struct("=III")
_USER, _USER_OFFSET = struct.Struct("=I"), 64
_ANY_STATE, _NO_COOKIE = 0xFFFFFFFF, 0xFFFFFFFF
_NOBODY = (bytes(16), 0)


class Query(NamedTuple):
    """The local end of a packet: protocol, address, port and the number of the device that it comes from (0: any).

    With the address and the port of the peer it is one of a connection, whose socket is found first.
    """

    protocol: str
    address: str
    port: int
    device: int = 0
    peer: tuple[str, int] | None = None


@functools.cache
def is_supported(protocol: str) -> bool:
    """Return whether the kernel has sock_diag for a protocol. Blocks; a list without any state in it is empty."""
    try:
        with netlink.connect(PROTOCOL) as connection:
            body = _REQUEST.pack(socket.AF_INET, PROTOCOLS[protocol], 0, 0, 0, 0, 0, bytes(16), bytes(16))
            netlink.dump_once(connection, _BY_FAMILY, body + _REST.pack(0, 0, 0))
    except OSError:
        return False
    return True


def taken(connection: socket.socket, queries: Iterable[Query]) -> set[Query]:
    """Return the queries whose packets a socket would take that has no peer. OSError if the kernel does not answer.

    Blocking, some 4 µs for each. The protocols have to be supported: the kernel's answer is otherwise that there is no socket.
    """
    return set(owners(connection, queries))


def owners(connection: socket.socket, queries: Iterable[Query]) -> dict[Query, int]:
    """Return the same with the numbers of the users that have opened the sockets."""
    found: dict[Query, int] = {}
    waiting = iter(queries)
    while batch := list(itertools.islice(waiting, netlink.BATCH)):
        connection.send(b"".join(netlink.request(_BY_FAMILY, netlink.REQUEST, _encoded(each)) for each in batch))
        answers: list[netlink.Message] = []
        while len(answers) < len(batch):
            answers += netlink.messages(connection.recv(1 << 16))
        for query, answer in zip(batch, answers, strict=True):
            error = netlink.error_of(answer) if answer.kind == netlink.ERROR else None
            if error is None:
                found[query] = _user_of(answer.body)
            elif error.errno != errno.ENOENT:
                raise error
    return found


def _user_of(answer: bytes) -> int:
    """Return the user in a struct inet_diag_msg."""
    return int(_USER.unpack_from(answer, _USER_OFFSET)[0]) if len(answer) >= _USER_OFFSET + _USER.size else 0


def _encoded(query: Query) -> bytes:
    family = socket.AF_INET6 if ":" in query.address else socket.AF_INET
    own = _packed(family, query.address, query.port)
    other = _packed(family, *query.peer) if query.peer else _NOBODY
    # The local end of UDP stands in the place of the peer's ("for historical reasons", net/ipv4/udp_diag.c).
    source, peer = (other, own) if query.protocol == "UDP" else (own, other)
    head = _REQUEST.pack(family, PROTOCOLS[query.protocol], 0, 0, _ANY_STATE, source[1], peer[1], source[0], peer[0])
    return head + _REST.pack(query.device, _NO_COOKIE, _NO_COOKIE)


def _packed(family: int, address: str, port: int) -> tuple[bytes, int]:
    return socket.inet_pton(family, address).ljust(16, b"\0"), port
