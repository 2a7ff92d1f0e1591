"""Services whose rules the kernel refuses are left out: whichever they are, all others are programmed, in every mode."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.api import core_v1
from kube.clock import FakeClock, settle
from netproxy import metrics, service_writer
from netproxy.backend import Backend
from netproxy.errors import WriteError
from netproxy.iptables.sync import IPTablesBackend
from netproxy.iptables.writer import RecordingWriter
from netproxy.ipvs.sync import IPVSBackend
from netproxy.model import ServicePort, plan_service
from netproxy.nftables.sync import NFTablesBackend
from netproxy.nftables.writer import RecordingWriter as NftRecordingWriter
from netproxy.service_writer import FIRST_RETRY, LAST_RETRY, PLAIN_STARTS, ServiceWriter
from tests.support.ipvs import MemoryKernel
from tests.support.memory_api import MemoryAPI
from tests.support.packet_cases import FIXED, RULES
from tests.support.services import service, slice_of
from tests.unit.netproxy.test_proxy import proxying

COUNT = 9


class Refusing:
    """Refuses texts that name an address, as long as it is in `addresses`."""

    def __init__(self) -> None:
        self.addresses: set[str] = set()
        self.everything = False
        self.attempts = 0

    def check(self, text: str) -> None:
        self.attempts += 1
        if self.everything:
            raise WriteError("refused")
        for address in self.addresses:
            if f"{address} " in text or f"{address}:" in text:
                raise WriteError(f"refused: {address}")

    def check_lines(self, text: str) -> None:
        """Refuse lines; what removes something is taken."""
        for line in text.splitlines():
            if self.everything or not line.startswith(("del", "-D", "-d")):
                self.check(line)


class Tables(RecordingWriter):
    def __init__(self, refusing: Refusing) -> None:
        super().__init__()
        self.refusing = refusing

    async def apply(self, text: str) -> None:
        self.refusing.check(text)
        await super().apply(text)


class Table(NftRecordingWriter):
    def __init__(self, refusing: Refusing) -> None:
        super().__init__()
        self.refusing = refusing

    async def apply(self, text: str) -> None:
        self.refusing.check(re.sub("delete element .*", "", text))
        await super().apply(text)


class Kernel(MemoryKernel):
    """Takes the lines before one that it refuses, as ipset and ipvsadm do."""

    def __init__(self, refusing: Refusing) -> None:
        super().__init__()
        self.refusing = refusing

    async def change_sets(self, text: str) -> None:
        for line in text.splitlines():
            self.refusing.check_lines(line)
            await super().change_sets(line)

    async def change_servers(self, text: str) -> None:
        for line in text.splitlines():
            self.refusing.check_lines(line)
            await super().change_servers(line)


class Site(NamedTuple):
    backend: Backend
    refusing: Refusing
    held: Callable[[], Any]


def iptables(clock: FakeClock) -> Site:
    refusing = Refusing()
    writer = Tables(refusing)

    def held() -> Any:
        return {
            table: {name: sorted(rules) for name, rules in chains.items()} for table, chains in writer.tables.items()
        }

    return Site(IPTablesBackend(writer, RULES, FIXED, clock=clock), refusing, held)


def nftables(clock: FakeClock) -> Site:
    refusing = Refusing()
    writer = Table(refusing)

    def held() -> Any:
        return writer.contents.elements, writer.contents.rules, sorted(writer.contents.sets)

    return Site(NFTablesBackend(writer, RULES, FIXED, clock=clock), refusing, held)


def ipvs(clock: FakeClock) -> Site:
    refusing = Refusing()
    kernel = Kernel(refusing)

    def held() -> Any:
        return kernel.table.servers, kernel.held, kernel.bound

    return Site(IPVSBackend(kernel, RecordingWriter(), RULES, FIXED, clock=clock), refusing, held)


SITES = [iptables, nftables, ipvs]
Make = Callable[[FakeClock], Site]


def address(number: int) -> str:
    """Return the endpoint that the kernel refuses."""
    return f"10.244.9.{number + 1}"


def planned(number: int, *endpoints: str) -> tuple[ServicePort, ...]:
    name = f"s{number}"
    return plan_service(service(name, f"10.96.5.{number + 1}"), [slice_of(name, *(endpoints or (address(number),)))])


def every(*endpoints: str) -> dict[str, tuple[ServicePort, ...]]:
    return {f"default/s{number}": planned(number, *endpoints) for number in range(COUNT)}


async def fresh(make: Make, services: Mapping[str, tuple[ServicePort, ...]]) -> Any:
    site = make(FakeClock())
    await site.backend.start(services)
    return site.held()


def without(refused: set[int]) -> dict[str, tuple[ServicePort, ...]]:
    return {key: ports for key, ports in every().items() if int(key[-1]) not in refused}


@pytest.mark.parametrize("make", SITES)
@given(refused=st.sets(st.integers(0, COUNT - 1)), old=st.sets(st.integers(0, COUNT - 1)))
@settings(max_examples=25, deadline=None)
async def test_all_others_are_programmed_and_the_refused_once_they_are_taken(
    make: Make, refused: set[int], old: set[int]
) -> None:
    clock, told, taken = FakeClock(), list[str](), list[str]()
    site = make(clock)
    writer = ServiceWriter(site.backend, clock, lambda key, why: told.append(key), taken.append)
    await writer.start({key: ports for key, ports in every("10.244.1.2").items() if int(key[-1]) in old})
    site.refusing.addresses = {address(number) for number in refused}
    await writer.apply(every())
    assert sorted(told) == [f"default/s{number}" for number in sorted(refused)]
    assert site.held() == await fresh(make, without(refused))
    assert writer.in_force == without(refused)

    site.refusing.addresses = set()
    assert not writer.due
    await clock.advance(FIRST_RETRY)
    await writer.retry()
    assert site.held() == await fresh(make, every())
    assert sorted(taken) == sorted(told)


@pytest.mark.parametrize("make", SITES)
@given(refused=st.sets(st.integers(0, COUNT - 1)))
@settings(max_examples=25, deadline=None)
async def test_a_start_leaves_them_out_where_the_kernel_goes_on_refusing(make: Make, refused: set[int]) -> None:
    site = make(clock := FakeClock())
    writer = ServiceWriter(site.backend, clock)
    site.refusing.addresses = {address(number) for number in refused}
    for _ in range(PLAIN_STARTS if refused else 0):
        with pytest.raises(WriteError):
            await writer.start(every())
    await writer.start(every())
    assert site.held() == await fresh(make, without(refused))


@pytest.mark.parametrize("make", SITES)
async def test_what_was_in_force_stays_while_the_kernel_takes_nothing(make: Make) -> None:
    site = make(clock := FakeClock())
    writer = ServiceWriter(site.backend, clock)
    await writer.start(every())
    before = site.held()
    site.refusing.everything = True
    with pytest.raises(WriteError):
        await writer.apply(every("10.244.1.3"))
    site.refusing.everything = False
    await site.backend.verify()
    assert site.held() == before
    assert writer.due
    await writer.retry()
    assert site.held() == await fresh(make, every("10.244.1.3"))


async def test_the_attempts_have_a_bound_and_all_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_writer, "ATTEMPTS", 4)
    site = iptables(clock := FakeClock())
    writer = ServiceWriter(site.backend, clock)
    await writer.start({})
    refused = {0, 3, 4, 8}
    site.refusing.addresses = {address(number) for number in refused}
    await writer.apply(every())
    assert site.refusing.attempts < 24
    for _ in range(12):
        if writer.due:
            await writer.retry()
    assert site.held() == await fresh(iptables, without(refused))


async def test_a_refused_service_is_tried_ever_more_seldom_and_soon_where_it_changes() -> None:
    site = nftables(clock := FakeClock())
    writer = ServiceWriter(site.backend, clock)
    site.refusing.addresses = {address(1)}
    await writer.start({})
    await writer.apply({"default/s1": planned(1)})
    waits = []
    for _ in range(8):
        before = clock.monotonic()
        while not writer.due:
            await clock.advance(5)
        waits.append(clock.monotonic() - before)
        await writer.retry()
    assert waits == [10, 20, 40, 80, 160, 320, 600, 600] and LAST_RETRY == 600
    attempts = site.refusing.attempts
    await writer.apply({"default/s1": planned(1, "10.244.1.9", address(1))})
    assert site.refusing.attempts == attempts and not writer.due  # not at once: it may change every second
    await clock.advance(FIRST_RETRY)
    assert writer.due
    await writer.apply({"default/s1": ()})
    assert not writer.due and writer.in_force == {}


async def test_a_refused_service_is_reported_once_and_all_others_follow(caplog: pytest.LogCaptureFixture) -> None:
    api, refusing, told = MemoryAPI(), Refusing(), list[tuple[str, str]]()
    writer, count = Tables(refusing), metrics.SERVICES_LEFT_OUT.labels("IPv4")

    def on_left_out(left: core_v1.Service, why: str) -> None:
        told.append((left.metadata.name or "", why))

    async with proxying(api, writer, on_left_out=on_left_out, clock=(clock := FakeClock())) as proxy:
        refusing.addresses = {address(1)}
        for number in range(3):
            api.put(service(f"s{number}", f"10.96.5.{number + 1}", selector={"app": "web"}))
            api.put(slice_of(f"s{number}", address(number)))
        await settle(100)
        api.put(service("later", "10.96.5.9"))
        api.put(slice_of("later", "10.244.1.2"))
        await settle(100)
        services = str(writer.tables["nat"]["KUBE-SERVICES"])
        assert [ip in services for ip in ("10.96.5.1/", "10.96.5.2/", "10.96.5.3/", "10.96.5.9/")] == [1, 0, 1, 1]
        assert told == [("s1", "the kernel refuses its IPv4 rules")] and count._value.get() == 1
        assert proxy.ports.keys() - proxy.in_force(proxy._backends[0]).keys() == {"default/s1"}
        await clock.advance(FIRST_RETRY)
        await proxy.verify()
        assert len(told) == 1 and count._value.get() == 1
        refusing.addresses = set()
        await clock.advance(2 * FIRST_RETRY)
        await proxy.verify()
        assert "10.96.5.2/" in str(writer.tables["nat"]["KUBE-SERVICES"]) and count._value.get() == 0
    assert sum("Service default/s1 is not served" in each.getMessage() for each in caplog.records) == 1
