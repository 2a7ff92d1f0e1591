"""Services whose rules take too long to write: they are left out, and retried less often than refused ones."""

import copy
import itertools
from typing import Any

import pytest

from kube.process import CommandError, Result
from netproxy.errors import WriteError, WriteTimeout
from netproxy.ipvs import kernel
from netproxy.model import ServicePort, plan_service
from netproxy.nft import writer as nft_writer
from netproxy.service_writer import FIRST_RETRY, MAX_POSTPONED, TIMEOUT_RETRY, WHOLE_STARTS, ServiceWriter
from tests.support.clock import FakeClock, settle
from tests.support.iptables_in_memory import RecordingWriter
from tests.support.memory_api import MemoryAPI
from tests.support.refusing_kernels import (
    SITES,
    Make,
    Refusing,
    Tables,
    address,
    every,
    fresh,
    iptables,
    late,
    nftables,
    planned,
    without,
)
from tests.support.services import service, slice_of
from tests.unit.netproxy.test_proxy import proxying


@pytest.mark.parametrize("known", [False, True])
async def test_a_service_that_takes_too_long_is_tried_once_and_nothing_is_compared(known: bool) -> None:
    site, reported = late(1), list[str]()
    writer = ServiceWriter(site.backend, FakeClock(), on_timeout=lambda key, why: reported.append(key))
    await writer.start({"default/s1": planned(1, "10.244.1.2")} if known else {})
    site.refusing.attempts = site.refusing.reads = 0
    await writer.apply({"default/s1": planned(1)})
    assert reported == ["default/s1"] and writer.in_force == {} and not writer.retry_due
    # What was in force is removed: its endpoints may be gone.
    assert (site.refusing.attempts, site.refusing.reads) == (1 + known, 0)
    assert not await site.backend.verify() and site.refusing.reads == 0
    await writer.apply({"default/s2": planned(2)})
    assert site.refusing.attempts == 2 + known and site.held() == await fresh(iptables, {"default/s2": planned(2)})


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("make", SITES)
async def test_a_service_that_takes_too_long_is_written_once_in_every_mode(make: Make, known: bool) -> None:
    site, reported = make(FakeClock()), list[str]()
    writer = ServiceWriter(site.backend, FakeClock(), on_timeout=lambda key, why: reported.append(key))
    others = {"default/s2": planned(2)}
    await writer.start(others | ({"default/s1": planned(1, "10.244.1.2")} if known else {}))
    site.refusing.error, site.refusing.addresses = WriteTimeout, {address(1)}
    site.refusing.reads = 0
    await writer.apply({"default/s1": planned(1)})
    assert reported == ["default/s1"] and writer.in_force.keys() == others.keys() and not writer.retry_due
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


async def test_a_command_that_times_out_is_distinguished_from_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
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
    reported = list[str]()
    async with proxying(
        api, Tables(refusing), clock=clock, on_not_served=lambda left, why: reported.append(why)
    ) as proxy:
        api.put(service("s1", "10.96.5.2"))
        api.put(slice_of("s1", address(1)))
        await settle(100)
        assert reported == ["its IPv4 rules take too long to write"]
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
