"""The node's own addresses in its gateway: read again after a report of the kernel, in between, and without reports."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Iterator

import pytest

from netproxy import local_addresses, netlink
from netproxy.gateway import own_addresses
from netproxy.gateway.own_addresses import PAUSE_SECONDS, PERIOD_SECONDS, OwnAddresses
from tests.support.clock import FakeClock, settle


class Kernel:
    def __init__(self) -> None:
        self.addresses: tuple[str, ...] = ("10.0.0.1", "fe80::1", "169.254.0.1")
        self.reads = 0

    async def all_addresses(self) -> tuple[str, ...]:
        self.reads += 1
        return self.addresses


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(local_addresses, "all_addresses", made.all_addresses)
    return made


async def test_a_burst_of_reports_costs_few_reads(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    reported = asyncio.Event()

    @contextlib.contextmanager
    def reports() -> Iterator[asyncio.Event]:
        yield reported

    monkeypatch.setattr(own_addresses, "_reports", reports)
    clock, changes = FakeClock(), list[frozenset[str]]()
    own = OwnAddresses(clock)
    await own.read()
    assert own.addresses == {"10.0.0.1"}, "link-local addresses come and go with pods"
    following = asyncio.create_task(own.run(lambda: changes.append(own.addresses)))
    for number in range(100):
        kernel.addresses = ("10.0.0.1", f"10.0.1.{number}")
        reported.set()
        await settle()
    assert kernel.reads == 2 and changes == [{"10.0.0.1", "10.0.1.0"}]
    await clock.advance(PAUSE_SECONDS)
    await settle()
    assert kernel.reads == 3 and changes[1:] == [{"10.0.0.1", "10.0.1.99"}]
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_without_reports_addresses_are_read_periodically(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(protocol: int) -> None:
        raise OSError(errno.EPERM, "not permitted")

    monkeypatch.setattr(netlink, "connect", refused)
    clock, changes = FakeClock(), list[int]()
    own = OwnAddresses(clock)
    following = asyncio.create_task(own.run(lambda: changes.append(kernel.reads)))
    await settle()
    kernel.addresses = ("10.0.0.2",)
    for _ in range(2):
        await clock.advance(PAUSE_SECONDS)
        await settle()
        await clock.advance(PERIOD_SECONDS)
        await settle()
    assert changes == [1, 2] and own.addresses == {"10.0.0.2"}
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
