"""Reads and changes the node's own addresses, by netlink in a thread."""

from __future__ import annotations

import errno
import socket
from functools import partial

from netproxy import netlink, rtnetlink_tables
from netproxy import rtnetlink_requests as requests


async def global_addresses() -> tuple[str, ...]:
    """Return the node's addresses of global scope."""
    return tuple(each.address for each in await netlink.in_thread(rtnetlink_tables.addresses))


async def all_addresses() -> tuple[str, ...]:
    """Return the node's addresses of every scope: connections to them end on the node."""
    work = partial(rtnetlink_tables.addresses, any_scope=True)
    return tuple(each.address for each in await netlink.in_thread(work))


async def add_local_address(address: str) -> None:
    """Make an address one of the node's own, on the loopback device; no error if it is already. OSError if refused."""
    loopback = netlink.interface_index("lo")
    await _change(requests.set_up(loopback), requests.replace_address(address, loopback, host=True))


async def remove_local_address(address: str) -> None:
    """Take an address from the loopback device; no error if it is not there."""
    await _change(requests.delete_address(address, netlink.interface_index("lo")), missing=(errno.EADDRNOTAVAIL,))


async def _change(*changes: bytes, missing: tuple[int, ...] = ()) -> None:
    def work(connection: socket.socket) -> None:
        netlink.apply(connection, changes, missing)

    await netlink.in_thread(work)
