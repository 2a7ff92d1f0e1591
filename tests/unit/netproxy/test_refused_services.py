"""Services whose rules the kernel refuses are left out: whichever they are, all others are programmed, in every mode."""

import asyncio
import copy
import itertools
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.api import core_v1
from kube.clock import FakeClock, settle
from kube.process import CommandError, Result
from netproxy import large_changes, metrics, service_search
from netproxy.backend import Backend
from netproxy.errors import WriteError, WriteTimeout
from netproxy.iptables.backend import IPTablesBackend
from netproxy.ipvs import kernel, state
from netproxy.ipvs.backend import IPVSBackend
from netproxy.model import ServicePort, plan_service
from netproxy.nft import writer as nft_writer
from netproxy.nftables import backend
from netproxy.nftables.backend import NFTablesBackend
from netproxy.service_writer import FIRST_RETRY, LAST_RETRY, MAX_POSTPONED, TIMEOUT_RETRY, WHOLE_STARTS, ServiceWriter
from tests.support.iptables_in_memory import RecordingWriter
from tests.support.ipvs import MemoryKernel
from tests.support.memory_api import MemoryAPI
from tests.support.nft_in_memory import RecordingWriter as NftRecordingWriter
from tests.support.packet_cases import FIXED, RULES
from tests.support.services import port, service, slice_of
from tests.unit.netproxy.test_proxy import proxying

COUNT = 9


class Refusing:
    """Refuses texts that name an address, as long as it is in `addresses`."""

    def __init__(self) -> None:
        self.addresses: set[str] = set()
        self.everything = False
        self.attempts = self.reads = self.refusals = 0
        self.error: type[WriteError] = WriteError

    def check(self, text: str) -> None:
        self.attempts += 1
        if self.everything:
            raise WriteError("refused")
        for address in self.addresses:
            if f"{address} " in text or f"{address}:" in text:
                self.refusals += 1
                raise self.error(f"refused: {address}")

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

    async def read(self) -> Any:
        self.refusing.reads += 1
        return await super().read()


class Table(NftRecordingWriter):
    def __init__(self, refusing: Refusing) -> None:
        super().__init__()
        self.refusing = refusing

    async def apply(self, text: str) -> None:
        self.refusing.check(re.sub("delete element .*", "", text))
        await super().apply(text)

    async def read(self) -> Any:
        self.refusing.reads += 1
        return await super().read()


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


@pytest.mark.parametrize("error", [WriteError, WriteTimeout])
@pytest.mark.parametrize("make", SITES)
@given(refused=st.sets(st.integers(0, COUNT - 1)), old=st.sets(st.integers(0, COUNT - 1)))
@settings(max_examples=25, deadline=None)
async def test_all_others_are_programmed_and_the_refused_once_they_are_taken(
    make: Make, error: type[WriteError], refused: set[int], old: set[int]
) -> None:
    clock, told, taken = FakeClock(), list[str](), list[str]()
    site = make(clock)
    site.refusing.error = error

    def on_refused(key: str, why: str) -> None:
        told.append(key)

    writer = ServiceWriter(site.backend, clock, on_refused, taken.append, on_refused)
    await writer.start({key: ports for key, ports in every("10.244.1.2").items() if int(key[-1]) in old})
    site.refusing.addresses = {address(number) for number in refused}
    await writer.apply(every())
    assert sorted(told) == [f"default/s{number}" for number in sorted(refused)]
    assert site.held() == await fresh(make, without(refused))
    assert writer.in_force == without(refused)

    site.refusing.addresses = set()
    assert not writer.retry_due
    await clock.advance(FIRST_RETRY if error is WriteError else TIMEOUT_RETRY)
    while writer.retry_due:
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
    for _ in range(WHOLE_STARTS if refused else 0):
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
    assert writer.retry_due
    await writer.retry()
    assert site.held() == await fresh(make, every("10.244.1.3"))


async def test_the_attempts_have_a_bound_and_all_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_search, "ATTEMPTS", 4)
    site = iptables(clock := FakeClock())
    writer = ServiceWriter(site.backend, clock)
    await writer.start({})
    refused = {0, 3, 4, 8}
    site.refusing.addresses = {address(number) for number in refused}
    await writer.apply(every())
    assert site.refusing.attempts < 24
    for _ in range(12):
        if writer.retry_due:
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
        while not writer.retry_due:
            await clock.advance(5)
        waits.append(clock.monotonic() - before)
        await writer.retry()
    assert waits == [10, 20, 40, 80, 160, 320, 600, 600] and LAST_RETRY == 600
    attempts = site.refusing.attempts
    await writer.apply({"default/s1": planned(1, "10.244.1.9", address(1))})
    assert site.refusing.attempts == attempts and not writer.retry_due  # not at once: it may change every second
    await clock.advance(FIRST_RETRY)
    assert writer.retry_due
    await writer.apply({"default/s1": ()})
    assert not writer.retry_due and writer.in_force == {}


def late(*numbers: int) -> Site:
    """Return tables in which the rules of some Services take too long to write."""
    site = iptables(FakeClock())
    site.refusing.error, site.refusing.addresses = WriteTimeout, {address(number) for number in numbers}
    return site


@pytest.mark.parametrize("known", [False, True])
async def test_a_service_that_takes_too_long_is_tried_once_and_nothing_is_compared(known: bool) -> None:
    site, told = late(1), list[str]()
    writer = ServiceWriter(site.backend, FakeClock(), on_timeout=lambda key, why: told.append(key))
    await writer.start({"default/s1": planned(1, "10.244.1.2")} if known else {})
    site.refusing.attempts = site.refusing.reads = 0
    await writer.apply({"default/s1": planned(1)})
    assert told == ["default/s1"] and writer.in_force == {} and not writer.retry_due
    # What was in force is removed: its endpoints may be gone.
    assert (site.refusing.attempts, site.refusing.reads) == (1 + known, 0)
    assert not await site.backend.verify() and site.refusing.reads == 0
    await writer.apply({"default/s2": planned(2)})
    assert site.refusing.attempts == 2 + known and site.held() == await fresh(iptables, {"default/s2": planned(2)})


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("make", SITES)
async def test_a_service_that_takes_too_long_is_written_once_in_every_mode(make: Make, known: bool) -> None:
    site, told = make(FakeClock()), list[str]()
    writer = ServiceWriter(site.backend, FakeClock(), on_timeout=lambda key, why: told.append(key))
    others = {"default/s2": planned(2)}
    await writer.start(others | ({"default/s1": planned(1, "10.244.1.2")} if known else {}))
    site.refusing.error, site.refusing.addresses = WriteTimeout, {address(1)}
    site.refusing.reads = 0
    await writer.apply({"default/s1": planned(1)})
    assert told == ["default/s1"] and writer.in_force.keys() == others.keys() and not writer.retry_due
    assert site.refusing.refusals == 1 and site.refusing.reads == 0
    assert site.held() == await fresh(make, others)


async def test_a_table_from_which_a_late_change_took_nothing_is_as_it_was_where_services_name_the_same_address() -> (
    None
):
    site = nftables(FakeClock())

    def shared(number: int, endpoint: str) -> tuple[ServicePort, ...]:
        name = f"s{number}"
        made = service(name, f"10.96.5.{number + 1}", external_ips=["192.0.2.1"])
        return plan_service(made, [slice_of(name, endpoint)])

    ports = {f"default/s{number}": shared(number, f"10.244.1.{number + 2}") for number in range(3)}
    backend: Any = site.backend
    await backend.start(ports)
    before, held = copy.deepcopy(backend._shadow._also), site.held()
    site.refusing.error, site.refusing.addresses = WriteTimeout, {address(1)}
    site.refusing.reads = 0
    for number, key in enumerate(ports):
        with pytest.raises(WriteTimeout):
            await backend.apply({key: shared(number, address(1))})
        assert site.held() == held and backend._shadow.elements == held[0] and backend._shadow._also == before
    await backend.apply(dict.fromkeys(ports, ()))
    assert not backend._shadow.elements and not backend._shadow._also and not backend._shadow._shared
    assert site.refusing.reads == 0
    assert site.held() == await fresh(nftables, {})


async def test_a_command_that_takes_too_long_is_told_from_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    async def late_run(argv: list[str], **options: Any) -> Any:
        raise CommandError(argv, "still running") from TimeoutError()

    async def refused_run(argv: list[str], **options: Any) -> Any:
        raise CommandError(argv, "exit status 1", Result(1, "", "Error"))

    for module, write in (
        (nft_writer, nft_writer.NftWriter().apply),
        (kernel, kernel.RealKernel().change_servers),
        (kernel, kernel.RealKernel().change_sets),
    ):
        monkeypatch.setattr(module, "run", late_run)
        with pytest.raises(WriteTimeout):
            await write("text")
        monkeypatch.setattr(module, "run", refused_run)
        with pytest.raises(WriteError) as caught:
            await write("text")
        assert not isinstance(caught.value, WriteTimeout)


@pytest.mark.parametrize("count", [100, 600])
@pytest.mark.parametrize(("module", "name", "make"), [(backend, "fragment", nftables), (state, "plan", ipvs)])
async def test_a_thread_makes_what_is_written_for_a_large_service(
    module: Any, name: str, make: Make, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, whole = list[bool](), getattr(module, name)

    def watched(*arguments: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return whole(*arguments)

    monkeypatch.setattr(module, name, watched)
    many = plan_service(service("many", "10.96.5.1", *(port(f"p{n}", n + 1) for n in range(count))), [])
    site = make(FakeClock())
    await site.backend.start({"default/many": many[:-1]})
    await site.backend.apply({"default/many": many})
    assert threads == [count < large_changes.LARGE] * 2
    assert site.held() == await fresh(make, {"default/many": many})


async def test_services_that_are_planned_in_a_thread_follow_addresses_that_the_node_gains_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large_changes, "LARGE", 0)
    kernel = Kernel(Refusing())
    backend = IPVSBackend(kernel, RecordingWriter(), RULES, FIXED, clock=FakeClock())
    ports = {key: made for key, made in every().items()}
    await backend.start(ports)
    site = ipvs(FakeClock())
    site.backend._kernel.nodes.add("192.168.0.9")  # type: ignore[attr-defined]
    new = plan_service(service("s1", "10.96.5.2", port("http", 80, node_port=30001), type="NodePort"), [])
    await site.backend.start(ports | {"default/s1": new})
    change = asyncio.create_task(backend.apply({"default/s1": new}))
    await asyncio.sleep(0)
    kernel.nodes.add("192.168.0.9")
    await asyncio.gather(change, backend._follow_node_addresses())
    assert backend._desired.total == site.backend._desired.total  # type: ignore[attr-defined]


async def test_a_large_service_that_takes_too_long_holds_up_others_for_two_writes() -> None:
    site = late(1)
    writer = ServiceWriter(site.backend, FakeClock())
    await writer.start({})
    site.refusing.attempts = site.refusing.reads = 0
    services = every() | {"default/s1": planned(1, address(1), *(f"10.244.2.{n}" for n in range(40)))}
    await writer.apply(services)
    assert (site.refusing.attempts, site.refusing.reads) == (3, 0)  # all, the others, the large one
    assert writer.in_force == without({1}) and site.held() == await fresh(iptables, without({1}))


async def test_a_change_that_was_cut_off_between_tables_is_found_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site, whole = late(), RecordingWriter.apply
    writer = ServiceWriter(site.backend, FakeClock())
    await writer.start(every("10.244.1.2"))
    before = site.held()

    async def cut(self: RecordingWriter, text: str) -> None:
        first, commit, _ = text.partition("COMMIT\n")
        await whole(self, first + commit)
        if "*filter" in text and "10.244.1.2" not in text:
            raise WriteTimeout("still running")

    monkeypatch.setattr(RecordingWriter, "apply", cut)
    await writer.apply({"default/s1": plan_service(service("s1", "10.96.5.2"), [])})
    monkeypatch.setattr(RecordingWriter, "apply", whole)
    assert "was refused" not in caplog.text  # as what is made from tables that were taken for whole would be
    assert site.held() == await fresh(iptables, {k: v for k, v in every("10.244.1.2").items() if k != "default/s1"})
    assert site.held() != before


async def test_a_start_leaves_out_a_service_that_takes_too_long() -> None:
    site = late(1)
    writer = ServiceWriter(site.backend, FakeClock())
    for _ in range(WHOLE_STARTS):
        with pytest.raises(WriteTimeout):
            await writer.start(every())
    await writer.start(every())
    assert writer.in_force == without({1}) and not writer.retry_due


async def test_a_service_that_takes_too_long_is_tried_sooner_only_where_it_shrinks() -> None:
    site, clock = late(1), FakeClock()
    writer = ServiceWriter(site.backend, clock)
    await writer.start({})
    many = [address(1), *(f"10.244.2.{n}" for n in range(40))]
    await writer.apply({"default/s1": planned(1, *many)})
    waits = []
    for turn in range(5):
        before = clock.monotonic()
        while not writer.retry_due:
            await clock.advance(5)
            await writer.apply({"default/s1": planned(1, *many[: 40 - turn])})
        waits.append(clock.monotonic() - before)
        await writer.retry()
    assert waits == [120, 240, 480, 600, 600]
    await writer.apply({"default/s1": planned(1, *many[:15])})
    await clock.advance(FIRST_RETRY)
    assert writer.retry_due
    site.refusing.addresses = set()
    await writer.apply({"default/s2": planned(2)})  # others' changes are not written together with it
    assert writer.in_force.keys() == {"default/s2"}
    await writer.retry()
    assert writer.in_force.keys() == {"default/s1", "default/s2"}


async def test_a_retry_waits_until_no_change_does() -> None:
    api, refusing, clock = MemoryAPI(), Refusing(), FakeClock()
    refusing.error, refusing.addresses = WriteTimeout, {address(1)}
    told = list[str]()
    async with proxying(api, Tables(refusing), clock=clock, on_not_served=lambda left, why: told.append(why)) as proxy:
        api.put(service("s1", "10.96.5.2"))
        api.put(slice_of("s1", address(1)))
        await settle(100)
        assert told == ["its IPv4 rules take too long to write"]
        await clock.advance(TIMEOUT_RETRY)
        attempts = refusing.attempts
        async with proxy.write_lock:
            await proxy.verify()
        proxy.changes.wake.set()
        await proxy.verify()
        proxy.changes.wake.clear()
        assert refusing.attempts == attempts
        await proxy.verify()
        assert refusing.attempts == attempts + 1


async def test_late_services_are_tried_in_turn_where_changes_never_cease() -> None:
    api, refusing, clock = MemoryAPI(), Refusing(), FakeClock()
    refusing.error, refusing.addresses = WriteTimeout, {address(1), address(2)}
    async with proxying(api, Tables(refusing), clock=clock) as proxy:
        for number in (1, 2):
            api.put(service(f"s{number}", f"10.96.5.{number + 1}"))
            api.put(slice_of(f"s{number}", address(number)))
        await settle(100)
        began = clock.monotonic()
        tries: list[float] = []
        while len(tries) < 4:
            assert clock.monotonic() - began < 3600
            await clock.advance(5)
            proxy.changes.wake.set()
            attempts = refusing.attempts
            await proxy.verify()
            tries += [clock.monotonic() - began] * (refusing.attempts - attempts)
        first = TIMEOUT_RETRY + MAX_POSTPONED
        assert tries[0] <= first + 5 and tries[1] <= first + TIMEOUT_RETRY + 5  # one at a time
        assert all(later - earlier >= TIMEOUT_RETRY for earlier, later in itertools.pairwise(tries))
        refusing.addresses = {address(2)}
        while clock.monotonic() - began < 1500:
            await clock.advance(5)
            proxy.changes.wake.set()
            await proxy.verify()
        assert proxy.in_force(proxy._backends[0]).keys() == {"default/s1"}


async def test_a_late_service_is_tried_beside_others_that_are_refused_at_each_look() -> None:
    site, clock = late(1), FakeClock()
    writer = ServiceWriter(site.backend, clock)
    await writer.start({})
    await writer.apply({"default/s1": planned(1)})
    site.refusing.addresses, site.refusing.error = {address(2)}, WriteError
    await writer.apply({"default/s2": planned(2)})
    await clock.advance(TIMEOUT_RETRY)
    await writer.retry()
    assert writer.in_force.keys() == {"default/s1"}


async def test_a_family_that_cannot_be_repaired_keeps_the_other_from_no_look() -> None:
    async with proxying(MemoryAPI(), RecordingWriter()) as proxy:
        looks: list[int] = []

        class Looked:
            verify_needs_lock = False

            def __init__(self, family: int) -> None:
                self.family = family

            async def verify(self) -> bool:
                looks.append(self.family)
                if self.family == 4:
                    raise WriteError("refused")
                return False

        proxy._writers = [ServiceWriter(Looked(family), FakeClock()) for family in (4, 6)]  # type: ignore[arg-type]
        assert not await proxy.verify()
        assert looks == [4, 6]


async def test_a_refused_service_is_reported_once_and_all_others_follow(caplog: pytest.LogCaptureFixture) -> None:
    api, refusing, told = MemoryAPI(), Refusing(), list[tuple[str, str]]()
    writer, count = Tables(refusing), metrics.SERVICES_LEFT_OUT.labels("IPv4")

    def on_not_served(left: core_v1.Service, why: str) -> None:
        told.append((left.metadata.name or "", why))

    async with proxying(api, writer, on_not_served=on_not_served, clock=(clock := FakeClock())) as proxy:
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
