"""Services whose rules the kernel refuses are left out: whichever they are, all others are programmed, in every mode."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.api import core_v1
from netproxy import metrics, service_search
from netproxy.errors import WriteError, WriteTimeout
from netproxy.service_writer import FIRST_RETRY, LAST_RETRY, TIMEOUT_RETRY, WHOLE_STARTS, ServiceWriter
from tests.support.clock import FakeClock, settle
from tests.support.iptables_in_memory import RecordingWriter
from tests.support.memory_api import MemoryAPI
from tests.support.refusing_kernels import (
    COUNT,
    SITES,
    Make,
    Refusing,
    Tables,
    address,
    every,
    fresh,
    iptables,
    nftables,
    planned,
    without,
)
from tests.support.services import service, slice_of
from tests.unit.netproxy.test_proxy import proxying


@pytest.mark.parametrize("error", [WriteError, WriteTimeout])
@pytest.mark.parametrize("make", SITES)
@given(refused=st.sets(st.integers(0, COUNT - 1)), old=st.sets(st.integers(0, COUNT - 1)))
@settings(max_examples=25, deadline=None)
async def test_all_others_are_programmed_and_the_refused_once_they_are_taken(
    make: Make, error: type[WriteError], refused: set[int], old: set[int]
) -> None:
    clock, reported, taken = FakeClock(), list[str](), list[str]()
    site = make(clock)
    site.refusing.error = error

    def on_refused(key: str, why: str) -> None:
        reported.append(key)

    writer = ServiceWriter(site.backend, clock, on_refused, taken.append, on_refused)
    await writer.start({key: ports for key, ports in every("10.244.1.2").items() if int(key[-1]) in old})
    site.refusing.addresses = {address(number) for number in refused}
    await writer.apply(every())
    assert sorted(reported) == [f"default/s{number}" for number in sorted(refused)]
    assert site.held() == await fresh(make, without(refused))
    assert writer.in_force == without(refused)

    site.refusing.addresses = set()
    assert not writer.retry_due
    await clock.advance(FIRST_RETRY if error is WriteError else TIMEOUT_RETRY)
    while writer.retry_due:
        await writer.retry()
    assert site.held() == await fresh(make, every())
    assert sorted(taken) == sorted(reported)


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
    api, refusing, reported = MemoryAPI(), Refusing(), list[tuple[str, str]]()
    writer, count = Tables(refusing), metrics.SERVICES_LEFT_OUT.labels("IPv4")

    def on_not_served(left: core_v1.Service, why: str) -> None:
        reported.append((left.metadata.name or "", why))

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
        assert reported == [("s1", "the kernel refuses its IPv4 rules")] and count._value.get() == 1
        assert proxy.ports.keys() - proxy.in_force(proxy._backends[0]).keys() == {"default/s1"}
        await clock.advance(FIRST_RETRY)
        await proxy.verify()
        assert len(reported) == 1 and count._value.get() == 1
        refusing.addresses = set()
        await clock.advance(2 * FIRST_RETRY)
        await proxy.verify()
        assert "10.96.5.2/" in str(writer.tables["nat"]["KUBE-SERVICES"]) and count._value.get() == 0
    assert sum("Service default/s1 is not served" in each.getMessage() for each in caplog.records) == 1
