"""Reports ports of the node's gateway at which its Gateways and Ingresses are not served.

Another program listens there, or the network role cannot copy the gateway's socket (gateway_sockets.py).

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
_EFFECT = "Gateways and Ingresses are not served at these; connections to them are refused"
Report = Callable[[str], None]
"""Takes a text for an event."""
Owners = Callable[[Collection[Query]], dict[Query, int]]
"""Returns the users of the sockets that take packets; OSError if the kernel does not answer. Blocks."""


def find_owners(queries: Collection[Query]) -> dict[Query, int]:
    """Return the users whose sockets listen on addresses."""
    with netlink.connect(socket_lookup.PROTOCOL, timeout=_TIMEOUT) as connection:
        return socket_lookup.owners(connection, queries)


class GatewayConflicts:
    """The addresses that the gateway cannot have, and those whose sockets cannot be copied.

    `in_use` and `not_copied` get texts about those that are new.
    """

    def __init__(self, in_use: Report, not_copied: Report, clock: Clock, owners: Owners = find_owners) -> None:
        self._in_use, self._not_copied, self._clock, self._owners = in_use, not_copied, clock, owners
        self._known: set[Address] = set()
        self._new: dict[Address, None] = {}
        self._uncopied: dict[Address, None] = {}
        self._wake = asyncio.Event()

    def failed(self, addresses: Iterable[Address]) -> None:
        """Take addresses that the gateway could not bind."""
        self._add(addresses, self._new)

    def uncopied(self, addresses: Iterable[Address]) -> None:
        """Take addresses whose sockets could not be copied."""
        self._add(addresses, self._uncopied)

    def _add(self, addresses: Iterable[Address], new: dict[Address, None]) -> None:
        for each in addresses:
            if each not in self._known and len(self._known) < MOST:
                self._known.add(each)
                new[each] = None
                self._wake.set()

    def listening(self, addresses: Collection[Address]) -> None:
        """Take the addresses on which the gateway listens: a later conflict about one of them is new."""
        self._known.difference_update(addresses)

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            new, uncopied = list(self._new), list(self._uncopied)
            self._new.clear()
            self._uncopied.clear()
            if new:
                _report(await self._describe(new), self._in_use)
            if uncopied:
                _report(_describe_uncopied(uncopied), self._not_copied)
            await self._clock.sleep(PERIOD)

    async def _describe(self, addresses: list[Address]) -> str:
        queries = {each: Query("TCP", *each) for each in addresses[:NAMED]}
        try:
            owners = await asyncio.to_thread(self._owners, tuple(queries.values()))
        except OSError as error:
            log.warning("the users of sockets cannot be looked up: %s", error)
            owners = {}
        named = [f"{host_port(*address)} ({_holder(owners.get(query))})" for address, query in queries.items()]
        return f"Other programs have ports of this node's gateway: {_joined(named, addresses)}. {_EFFECT}"


def _report(text: str, report: Report) -> None:
    log.error("%s", text)
    report(text)


def _describe_uncopied(addresses: list[Address]) -> str:
    named = [host_port(*each) for each in addresses[:NAMED]]
    return (
        f"The network role could not copy sockets of this node's gateway yet: {_joined(named, addresses)}. {_EFFECT}. "
        "Pods that run as root may keep too many descriptors in messages"
    )


def _joined(named: list[str], addresses: list[Address]) -> str:
    more = f" and {len(addresses) - NAMED} more" if len(addresses) > NAMED else ""
    return ", ".join(named) + more


def _holder(user: int | None) -> str:
    return "a socket that does not listen" if user is None else f"a program of user {user}"
