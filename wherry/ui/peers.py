"""Refuses connections of other users of the machine, where the kernel says whose a connection is (Linux, sock_diag).

They could do nothing without the session, but occupy the connections that the page needs. The socket of the client is looked
up by the two ends of the connection; it exists as long as the connection does.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

_LOGIN = Path("/proc/self/loginuid")
_UNSET = 0xFFFFFFFF
_TIMEOUT = 1.0


def own_users() -> frozenset[int] | None:
    """Return the users whose browsers may connect: this one, root, and who became root by sudo or su.

    None if that person is not known: the browser of a desktop does not run as root.
    """
    persons = {os.geteuid(), _number(os.environ.get("SUDO_UID", ""))}
    with contextlib.suppress(OSError):
        persons.add(_number(_LOGIN.read_text()))
    persons -= {_UNSET}
    return frozenset(persons | {0}) if persons - {0} else None


def _number(text: str) -> int:
    return int(text) if text.strip().isdigit() else _UNSET


@contextlib.contextmanager
def connections_of(users: frozenset[int] | None) -> Iterator[Callable[[socket.socket], bool] | None]:
    """Lend a function that returns whether a connection is one of these users; None if that cannot be found out."""
    if users is None or sys.platform != "linux":
        yield None
        return
    from netproxy import netlink, socket_lookup

    if not socket_lookup.is_supported("TCP"):
        yield None
        return

    def admits(accepted: socket.socket) -> bool:
        try:
            address, port = accepted.getpeername()[:2]
            # A socket that is bound to the device is found by that alone, any other one by its addresses, too.
            query = socket_lookup.Query("TCP", address, port, loopback, peer=accepted.getsockname()[:2])
            found = socket_lookup.owners(connection, [query])
        except OSError:
            return False  # the client has gone, or the kernel is short of memory
        return found.get(query) in users

    loopback = socket.if_nametoindex("lo")
    with netlink.connect(socket_lookup.PROTOCOL, timeout=_TIMEOUT) as connection:
        yield admits
