"""Addresses of nodes whose gateway listens already; others do not appear in statuses yet.

The gateway of a node listens, and its proxy forwards to it, some time after the objects of a Gateway are there. The controller
connects to each new address and port, with a back-off, until the connection is not refused. So nodes write nothing, and those
of older releases are served too. A timeout or another error counts as served: a firewall may be between, and a client whose
packets are dropped sends them again. A place that was served counts as served while the load balancer has it, also while the
node's gateway restarts, and after a restart of the controller, which reads the status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from control.controllers.gateway.plan import Owner
from kube import cancellation
from kube.clock import Clock
from kube.ip_addresses import reached

Place = tuple[str, int]
"""An address and a port."""
Refuses = Callable[[str, int, int], Awaitable[bool]]
"""Returns whether a connection to an address and port is refused, or one to the port on which that node's gateway listens."""
CONNECT_SECONDS, MOST_CONNECTIONS = 1.0, 64
FIRST_RETRY, LAST_RETRY = 0.1, 5.0
"""Seconds until refused connections are retried: doubled each time."""
LIMIT_SECONDS = 60.0
"""Time after which all addresses of a Gateway count as served if each connection was refused, to the nodes' own ports
too: not by the nodes, it seems."""


async def refuses(address: str, port: int, private: int = 0) -> bool:
    """Connect to an address; return whether the connection is refused.

    Another proxy than Wherry's may forward one to an address of this machine to the gateway of another node: the node's own
    port is tried too. Alone it says nothing: any program of the node may listen on it.
    """
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(address, port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    local = writer.get_extra_info("sockname")[0] == address
    writer.transport.abort()
    return bool(private) and local and await refuses(address, private)


@dataclass(frozen=True, slots=True)
class Known:
    """Addresses that the status of a Gateway lists, and the ports that were served there."""

    addresses: Collection[str]
    ports: Collection[int]


@dataclass(slots=True)
class _Gateway:
    """The places of a Gateway, with the ports of the nodes behind them."""

    uid: str
    served: set[Place]
    wanted: Mapping[Place, int] = field(default_factory=dict)
    since: float = 0.0
    """Time since which places are awaited."""
    reached: bool = False
    """True if any connection was not refused."""

    @property
    def awaited(self) -> list[Place]:
        """The places that are not served yet."""
        return [place for place in self.wanted if place not in self.served]


class ListeningNodes:
    """Places at which Gateways are served. `affected` gets the keys of Gateways of which more are."""

    def __init__(self, clock: Clock, affected: Callable[[str], None], connect: Refuses) -> None:
        self._clock, self._affected, self._refuses = clock, affected, connect
        self._gateways: dict[str, _Gateway] = {}
        self._working: set[str] = set()
        self._new = asyncio.Event()
        self._connections = asyncio.Semaphore(MOST_CONNECTIONS)

    def listed(
        self, owner: Owner, addresses: Sequence[str], wanted: Mapping[Place, int], known: Known
    ) -> tuple[list[str], frozenset[int]]:
        """Set the places of a Gateway, with the nodes' ports.

        Returns those of its addresses that a status may list: they have no place that is not served yet, or are listed
        already; and the ports that the listed ones do not serve yet.
        """
        found = self._gateways.get(owner.key)
        if found is None or found.uid != owner.uid:
            served = {(address, port) for address in known.addresses for port in known.ports}
            found = self._gateways[owner.key] = _Gateway(owner.uid, served)
        found.wanted = {place: port for place, port in wanted.items() if _may_be_dialled(place[0])}
        found.served &= found.wanted.keys()
        awaited = found.awaited
        if awaited and owner.key not in self._working:
            found.since = self._clock.monotonic()
            self._new.set()
        excluded = {address for address, _ in awaited} - set(known.addresses)
        ports = frozenset(port for address, port in awaited if address not in excluded)
        return [each for each in addresses if each not in excluded], ports

    def forget(self, key: str) -> None:
        """Drop a Gateway that is not served any more."""
        self._gateways.pop(key, None)

    async def run(self) -> None:
        """Connect to what is awaited, until cancelled."""
        self._working.clear()
        async with asyncio.TaskGroup() as group:
            while True:
                self._new.clear()
                for key, found in self._gateways.items():
                    if key not in self._working and found.awaited:
                        self._working.add(key)
                        cancellation.start(group, partial(self._follow, key), f"connections to gateways: {key}")
                await self._new.wait()

    async def _follow(self, key: str) -> None:
        """Connect to the places of a Gateway until all are served."""
        delay = FIRST_RETRY
        while (found := self._gateways.get(key)) is not None and (awaited := found.awaited):
            served = set(awaited) - await self._refused({place: found.wanted.get(place, 0) for place in awaited})
            if served:
                found.reached = True
            elif not found.reached and self._clock.monotonic() - found.since >= LIMIT_SECONDS:
                served = await self._behind_firewall({place: found.wanted.get(place, 0) for place in awaited})
            if served:
                found.served |= served
                self._affected(key)
            await self._clock.sleep(delay)
            delay = min(2 * delay, LAST_RETRY)
        self._working.discard(key)

    async def _behind_firewall(self, places: Mapping[Place, int]) -> set[Place]:
        """Return the places of nodes that refuse connections to the private port too.

        A program that has it where the place is refused is not the gateway: the node does not lead the place there.
        """
        private = {place: (place[0], port) for place, port in places.items()}
        refused = await self._refused({each: 0 for each in private.values() if each[1]})
        return {place for place, each in private.items() if not each[1] or each in refused}

    async def _refused(self, places: Mapping[Place, int]) -> set[Place]:
        """Return the places, of some with the nodes' ports, to which connections are refused."""
        found = set[Place]()
        listed = list(places)
        for start in range(0, len(listed), MOST_CONNECTIONS):
            batch = listed[start : start + MOST_CONNECTIONS]
            refused = await asyncio.gather(*(self._connect(place, places[place]) for place in batch))
            found |= {place for place, each in zip(batch, refused, strict=True) if each}
        return found

    async def _connect(self, place: Place, private: int) -> bool:
        async with self._connections:
            return await self._refuses(*place, private)


def _may_be_dialled(text: str) -> bool:
    """Return whether an address, which a node may have chosen, is none of this machine's or link's own."""
    try:
        address = reached(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified)
