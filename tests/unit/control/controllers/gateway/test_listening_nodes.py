"""Addresses of nodes are listed once connections to them are not refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from control.controllers.gateway.listening_nodes import (
    FIRST_RETRY,
    LAST_RETRY,
    LIMIT_SECONDS,
    Known,
    ListeningNodes,
)
from control.controllers.gateway.plan import Owner
from tests.support.clock import FakeClock

OWNER = Owner("infra/web", "uid")
NONE = Known((), ())
ADDRESSES = ["192.0.2.1", "192.0.2.2"]


class Site:
    """Nodes that refuse connections, the clock, and what was reported."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.refusing: set[tuple[str, int]] = set()
        self.tried: list[tuple[str, int, int]] = []
        self.affected: list[str] = []
        self.listening = ListeningNodes(self.clock, self.affected.append, self._refuses)

    async def _refuses(self, address: str, port: int, private: int) -> bool:
        self.tried.append((address, port, private))
        return (address, port) in self.refusing

    def listed(self, *ports: int, known: Known = NONE, uid: str = "uid") -> tuple[list[str], frozenset[int]]:
        wanted = {(address, port): 61000 + port for address in ADDRESSES for port in ports}
        return self.listening.listed(Owner(OWNER.key, uid), ADDRESSES, wanted, known)

    def refuse(self, *ports: int) -> None:
        self.refusing = {(address, port) for address in ADDRESSES for port in ports}


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Site]:
    site = Site()
    task = asyncio.create_task(site.listening.run())
    try:
        yield site
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_address_is_listed_once_all_its_ports_answer() -> None:
    async with running() as site:
        site.refusing = {(ADDRESSES[0], 443)}
        assert site.listed(80, 443) == ([], frozenset())
        await site.clock.advance(0)
        assert site.affected == [OWNER.key]
        assert site.listed(80, 443) == ([ADDRESSES[1]], frozenset())
        site.refusing.clear()
        await site.clock.advance(FIRST_RETRY)
        assert site.affected == [OWNER.key] * 2
        assert site.listed(80, 443) == (ADDRESSES, frozenset())
        tried = len(site.tried)
        await site.clock.advance(10 * LIMIT_SECONDS)
        assert len(site.tried) == tried == 5 and (ADDRESSES[0], 443, 61443) in site.tried


async def test_listed_addresses_stay_and_the_ports_that_they_do_not_serve_yet_are_reported() -> None:
    async with running() as site:
        site.refuse(443)
        known = Known(ADDRESSES[:1], (80,))
        assert site.listed(80, 443, known=known) == (ADDRESSES[:1], frozenset({443}))
        await site.clock.advance(0)
        assert ADDRESSES[0] not in {address for address, port, _ in site.tried if port == 80}


async def test_addresses_that_the_load_balancer_lost_are_connected_to_again() -> None:
    async with running() as site:
        site.listed(80)
        await site.clock.advance(FIRST_RETRY)
        assert site.listed(80) == (ADDRESSES, frozenset())
        site.listening.listed(OWNER, [], {}, NONE)
        site.refuse(80)
        assert site.listed(80) == ([], frozenset())


async def test_another_gateway_of_the_same_name_starts_anew() -> None:
    async with running() as site:
        site.listed(80)
        await site.clock.advance(FIRST_RETRY)
        assert site.listed(80, uid="other") == ([], frozenset())


async def test_refused_connections_are_retried_with_a_back_off_while_other_nodes_answer() -> None:
    async with running() as site:
        site.refusing = {(ADDRESSES[0], 80)}
        site.listed(80)
        await site.clock.advance(10 * LIMIT_SECONDS)
        assert site.listed(80) == ([ADDRESSES[1]], frozenset())
        assert len(site.tried) < 10 + 10 * LIMIT_SECONDS / LAST_RETRY


async def test_all_addresses_are_listed_after_a_while_if_every_connection_was_refused() -> None:
    async with running() as site:
        site.refuse(80, 61080)
        site.listed(80)
        await site.clock.advance(LIMIT_SECONDS - 1)
        assert site.listed(80) == ([], frozenset())
        await site.clock.advance(LAST_RETRY + 1)
        assert site.listed(80) == (ADDRESSES, frozenset()) and site.affected == [OWNER.key]


async def test_no_node_is_listed_where_another_program_has_the_gateways_port() -> None:
    async with running() as site:
        site.refuse(80)
        site.listed(80)
        await site.clock.advance(10 * LIMIT_SECONDS)
        assert site.listed(80) == ([], frozenset())
        site.refuse()
        await site.clock.advance(LAST_RETRY)
        assert site.listed(80) == (ADDRESSES, frozenset())


async def test_the_work_for_a_gateway_ends_with_it() -> None:
    async with running() as site:
        site.refuse(80)
        site.listed(80)
        await site.clock.advance(1)
        site.listening.forget(OWNER.key)
        await site.clock.advance(LAST_RETRY)
        tried = len(site.tried)
        await site.clock.advance(LIMIT_SECONDS)
        assert len(site.tried) == tried


async def test_loopback_and_link_local_addresses_of_nodes_are_not_connected_to() -> None:
    async with running() as site:
        addresses = ["127.0.0.1", "169.254.169.254", "::1", "not an address"]
        wanted = {(address, 80): 61000 for address in addresses}
        assert site.listening.listed(OWNER, addresses, wanted, NONE) == (addresses, frozenset())
        await site.clock.advance(1)
        assert not site.tried
