"""Reports ports of the node's gateway on which another program listens: its Gateways and Ingresses are not served there.

Any account may open such sockets again and again, so there is one report a minute at most, and each names a few ports.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable

from kube.clock import Clock
from kube.urls import host_port
from netproxy import netlink, socket_lookup
from netproxy.socket_channel import Address
from netproxy.socket_lookup import Query

log = logging.getLogger(__name__)
PERIOD = 60.0
"""Seconds between two reports."""
NAMED = 4
"""Ports that a report names."""
MOST = 4096
"""Addresses that are recorded."""
_TIMEOUT = 2.0
Owners = Callable[[Collection[Query]], dict[Query, int]]
"""Returns the users of the sockets that take packets; OSError if the kernel does not answer. Blocks."""


def find_owners(queries: Collection[Query]) -> dict[Query, int]:
    """Return the users whose sockets listen on addresses."""
    with netlink.connect(socket_lookup.PROTOCOL, timeout=_TIMEOUT) as connection:
        return socket_lookup.owners(connection, queries)


class GatewayConflicts:
    """The addresses that the gateway cannot have. `report` gets a text about those that are new."""

    def __init__(self, report: Callable[[str], None], clock: Clock, owners: Owners = find_owners) -> None:
        self._report, self._clock, self._owners = report, clock, owners
        self._known: set[Address] = set()
        self._new: dict[Address, None] = {}
        self._wake = asyncio.Event()

    def failed(self, addresses: Iterable[Address]) -> None:
        """Take addresses that the gateway could not bind."""
        for each in addresses:
            if each not in self._known and len(self._known) < MOST:
                self._known.add(each)
                self._new[each] = None
                self._wake.set()

    def listening(self, addresses: Collection[Address]) -> None:
        """Take the addresses on which the gateway listens: a later conflict about one of them is new."""
        self._known.difference_update(addresses)

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            new, self._new = list(self._new), {}
            text = await self._describe(new)
            log.error("%s", text)
            self._report(text)
            await self._clock.sleep(PERIOD)

    async def _describe(self, addresses: list[Address]) -> str:
        queries = {each: Query("TCP", *each) for each in addresses[:NAMED]}
        try:
            owners = await asyncio.to_thread(self._owners, tuple(queries.values()))
        except OSError as error:
            log.warning("the users of sockets cannot be looked up: %s", error)
            owners = {}
        named = [f"{host_port(*address)} ({_holder(owners.get(query))})" for address, query in queries.items()]
        more = f" and {len(addresses) - NAMED} more" if len(addresses) > NAMED else ""
        return (
            f"Other programs have ports of this node's gateway: {', '.join(named)}{more}. "
            "Gateways and Ingresses are not served at these; connections to them are refused"
        )


def _holder(user: int | None) -> str:
    return "a socket that does not listen" if user is None else f"a program of user {user}"
