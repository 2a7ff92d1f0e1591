"""Deletion of stale flows in a task of its own: with one list for any number, and blocked by nobody's hang."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from kube import loops
from kube.clock import SYSTEM
from netproxy import conntrack, flow_cleaner
from netproxy.conntrack import StaleFlows
from netproxy.errors import WriteError
from netproxy.flow_cleaner import FlowCleaner
from netproxy.model import plan_service
from tests.support.clock import FakeClock
from tests.support.flows import Table, flow, until
from tests.support.iptables_in_memory import RecordingWriter
from tests.support.memory_api import MemoryAPI
from tests.support.services import port, service, slice_of

from .test_proxy import proxying

DNS = StaleFlows(4, "UDP", "10.96.5.3", 53)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setattr(loops, "FIRST_RETRY", 0.01)
    return Table(monkeypatch)


@contextlib.asynccontextmanager
async def cleaning(ports: dict[str, Any] | None = None) -> AsyncIterator[FlowCleaner]:
    """Run a cleaner that has done its first sweep."""
    cleaner = FlowCleaner(lambda: ports or {}, SYSTEM)
    task = asyncio.create_task(cleaner.run())
    cleaner.rules_written()
    await until(lambda: not cleaner._sweep and not cleaner._wake.is_set())
    try:
        yield cleaner
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def dns_service() -> tuple[Any]:
    return (service("dns", "10.96.5.3", port("udp", 53, "UDP")),)


def dns(*endpoints: str) -> tuple[Any, ...]:
    return (*dns_service(), slice_of("dns", *endpoints, ports={"udp": 5353}, protocol="UDP"))


async def test_changes_are_written_while_flows_cannot_be_deleted(table: Table) -> None:
    api, writer = MemoryAPI(), RecordingWriter()
    for each in dns("10.244.1.2", "10.244.1.3"):
        api.put(each)
    table.flows = [flow("10.96.5.3", 53, "10.244.1.2", 5353), flow("10.96.5.3", 53, "10.244.1.3", 5353)]
    async with proxying(api, writer):
        await until(lambda: table.lists)
        table.going.clear()
        try:
            api.put(dns("10.244.1.3")[1])
            await until(lambda: table.under_way)
            api.put(service("web", "10.96.5.9"))
            api.put(slice_of("web", "10.244.1.7"))
            await until(lambda: "10.244.1.7" in str(writer.tables))
            assert not table.deleted
        finally:
            table.going.set()
        await until(lambda: table.deleted)
    assert table.deleted == [flow("10.96.5.3", 53, "10.244.1.2", 5353)]
    assert threading.get_ident() not in table.threads


async def test_flows_are_deleted_when_the_rules_are_written_and_not_before(table: Table) -> None:
    class Refusing(RecordingWriter):
        refuse = False

        async def apply(self, *arguments: Any, **options: Any) -> Any:
            if self.refuse:
                raise WriteError("no space")
            return await super().apply(*arguments, **options)

    api, writer = MemoryAPI(), Refusing()
    for each in dns("10.244.1.2", "10.244.1.3"):
        api.put(each)
    table.flows = [flow("10.96.5.3", 53, "10.244.1.2", 5353)]
    async with proxying(api, writer):
        writer.refuse = True
        api.put(dns("10.244.1.3")[1])
        await asyncio.sleep(0.1)
        assert not table.deleted
        writer.refuse = False
        api.put(service("web", "10.96.5.9"))
        await until(lambda: table.deleted)


async def test_an_unforeseen_error_ends_neither_the_cleaner_nor_the_proxy(table: Table) -> None:
    api, writer = MemoryAPI(), RecordingWriter()
    for each in dns("10.244.1.2", "10.244.1.3"):
        api.put(each)
    table.flows, table.errors = [flow("10.96.5.3", 53, "10.244.1.2", 5353)], [ValueError("a bug")]
    async with proxying(api, writer):
        await until(lambda: not table.errors)
        api.put(dns("10.244.1.3")[1])
        await until(lambda: table.deleted)
        assert "10.244.1.2" not in str(writer.tables)


async def test_lists_of_a_large_table_leave_time_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, lists = FakeClock(), list[float]()

    async def delete(flows: object) -> None:
        lists.append(clock.monotonic())
        await clock.sleep(0.5)

    async def sweep(ports: object) -> None:
        pass

    monkeypatch.setattr(conntrack, "delete_flows", delete)
    monkeypatch.setattr(conntrack, "delete_leftovers", sweep)
    cleaner = FlowCleaner(lambda: {}, clock)
    task = asyncio.create_task(cleaner.run())
    for _ in range(200):
        cleaner.add([DNS])
        cleaner.rules_written()
        await clock.advance(0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert 4 <= len(lists) <= 5
    assert all(later - earlier >= 5.0 for earlier, later in pairwise(lists))


async def test_any_number_of_deletions_is_one_list(table: Table) -> None:
    gone = [DNS._replace(endpoint=f"10.244.{n >> 8}.{n & 255}", endpoint_port=5353) for n in range(2000)]
    node_port = StaleFlows(4, "UDP", "", 30053)
    stale = [flow("10.96.5.3", 53, "10.244.1.2", 5353), flow("192.0.2.1", 30053, "192.0.2.1", 30053)]
    kept = [
        flow("10.96.5.3", 53, "10.244.99.2", 5353),
        flow("10.96.5.3", 53, "10.244.1.2", 5354),
        flow("10.96.5.4", 53, "10.244.1.2", 5353),
        flow("192.0.2.1", 30054, "192.0.2.1", 30054),
        flow("10.96.5.3", 53, "10.244.1.2", 5353, protocol=6),
    ]
    table.flows = [*stale, *kept]
    async with cleaning() as cleaner:
        for _ in range(2):
            cleaner.add([*gone, node_port])
        cleaner.rules_written()
        await until(lambda: table.deleted)
    assert table.deleted == stale and table.flows == kept and table.lists == 1


async def test_each_ip_version_and_protocol_is_listed_once_and_a_refusal_stops_no_other(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    table.flows = [flow("10.96.5.3", 53, "10.244.1.2", 5353)]
    table.errors = [OSError(errno.EPERM, "Operation not permitted")]
    async with cleaning() as cleaner:
        cleaner.add([StaleFlows(4, "SCTP", "10.96.5.3", 9), DNS, StaleFlows(6, "UDP", "fd96::3", 53)])
        cleaner.rules_written()
        await until(lambda: table.lists == 3 and table.deleted)
    assert [r.getMessage() for r in caplog.records if "stay until they time out" in r.getMessage()] == [
        "stale flows of SCTP stay until they time out: [Errno 1] Operation not permitted"
    ]


async def test_more_than_can_be_remembered_is_swept(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_cleaner, "MAX_QUEUED", 10)
    ports = {"default/dns": plan_service(*dns_service(), [dns("10.244.1.2")[1]])}
    leads_elsewhere = flow("10.96.5.3", 53, "10.244.9.9", 5353)
    table.flows = [leads_elsewhere]
    async with cleaning(ports) as cleaner:
        await until(lambda: len(table.deleted) == 1)
        table.flows = [leads_elsewhere]
        for number in range(100):
            cleaner.add([StaleFlows(4, "UDP", "", number)])
        assert len(cleaner._waiting) <= 10
        cleaner.rules_written()
        await until(lambda: len(table.deleted) > 1)
    assert table.deleted == [leads_elsewhere] * 2


def test_flows_of_an_earlier_life_to_node_ports_are_found() -> None:
    ports = plan_service(
        service("dns", "10.96.5.3", port("dns", 53, "UDP", node_port=30053), type="NodePort"),
        [slice_of("dns", "10.244.1.2", ports={"dns": 5353}, protocol="UDP")],
    )
    stale = conntrack.leftover(conntrack.wanted_endpoints(ports, 4, "UDP"))
    flows = [
        flow("192.0.2.1", 30053, "10.244.1.2", 5353),
        flow("192.0.2.1", 30053, "10.244.1.9", 5353),
        flow("192.0.2.1", 30053, "192.0.2.1", 30053),
        flow("192.0.2.1", 30054, "10.244.1.9", 5353),
    ]
    assert [stale(each) for each in flows] == [False, True, True, False]
