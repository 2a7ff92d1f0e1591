"""Reports of ports at which a node's gateway does not serve."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from netproxy import gateway_conflicts
from netproxy.gateway_conflicts import GatewayConflicts
from netproxy.socket_lookup import Query
from tests.support.clock import FakeClock

HTTP, HTTPS = ("192.0.2.1", 61000), ("2001:db8::1", 61001)


class Reports:
    def __init__(self) -> None:
        self.in_use: list[str] = []
        self.not_copied: list[str] = []
        self.clock = FakeClock()
        self.conflicts = GatewayConflicts(
            self.in_use.append, self.not_copied.append, self.clock, lambda queries: {Query("TCP", *HTTP): 1000}
        )

    async def until(self, texts: list[str], count: int) -> None:
        async with asyncio.timeout(20):
            while len(texts) < count:
                await asyncio.sleep(0.01)


@pytest.fixture
async def reports() -> AsyncIterator[Reports]:
    made = Reports()
    running = asyncio.create_task(made.conflicts.run())
    yield made
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_ports_of_others_and_sockets_that_are_not_copied_have_reports_of_their_own(reports: Reports) -> None:
    reports.conflicts.failed([HTTP])
    reports.conflicts.uncopied([HTTPS])
    await reports.until(reports.not_copied, 1)
    assert "192.0.2.1:61000 (a program of user 1000)" in reports.in_use[0]
    assert "[2001:db8::1]:61001" in reports.not_copied[0]
    assert "61001" not in reports.in_use[0]


async def test_a_socket_that_is_not_copied_is_reported_once_until_it_listens(reports: Reports) -> None:
    for _ in range(3):
        reports.conflicts.uncopied([HTTPS])
    await reports.until(reports.not_copied, 1)
    reports.conflicts.uncopied([HTTPS])
    await reports.clock.advance(gateway_conflicts.PERIOD + 1)
    reports.conflicts.listening([HTTPS])
    reports.conflicts.uncopied([HTTPS])
    await reports.until(reports.not_copied, 2)
    assert len(reports.not_copied) == 2
    assert not reports.in_use
