"""Deleting flows beside the proxy's loop: bounded, in few commands, and blocked by nobody's hang."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

import pytest

from kube import loops
from kube.clock import SYSTEM
from kube.process import CommandError, Result
from netproxy import conntrack, flow_cleaner
from netproxy.errors import WriteError
from netproxy.flow_cleaner import CONCURRENT, MAX_UNLISTED, FlowCleaner
from netproxy.model import plan_service
from tests.support.iptables_in_memory import RecordingWriter
from tests.support.memory_api import MemoryAPI
from tests.support.services import port, service, slice_of

from .test_proxy import proxying


class Command:
    """Stands for the command conntrack: answers lists with `listed`, and does not answer deletions while it hangs."""

    def __init__(self) -> None:
        self.listed, self.deleted = "", list[list[str]]()
        self.piece = 50  # bytes: no line comes whole
        self.going = asyncio.Event()
        self.going.set()
        self.under_way = self.most = self.lists = 0
        self.errors: list[Exception] = []

    async def pieces(self, argv: list[str], **options: Any) -> AsyncGenerator[bytes, None]:
        if self.errors:
            raise self.errors.pop()
        self.lists += 1
        listed = self.listed.encode()
        for start in range(0, len(listed), self.piece):
            yield listed[start : start + self.piece]

    async def run(self, argv: list[str], **options: Any) -> Result:
        if self.errors:
            raise self.errors.pop()
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await self.going.wait()
        await asyncio.sleep(0)
        self.under_way -= 1
        self.deleted.append(argv[2:])
        return Result(0, "", "conntrack v1.4.7 (conntrack-tools): 1 flow entries have been deleted.")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    made = Command()
    monkeypatch.setattr(conntrack, "run", made.run)
    monkeypatch.setattr(conntrack, "pieces", made.pieces)
    monkeypatch.setattr(loops, "FIRST_RETRY", 0.01)
    yield made


async def until(look: Any) -> None:
    async with asyncio.timeout(10):
        while not look():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def cleaning(ports: dict[str, Any] | None = None) -> AsyncIterator[FlowCleaner]:
    """Run a cleaner that has done its first sweep."""
    cleaner = FlowCleaner(lambda: ports or {}, SYSTEM)
    task = asyncio.create_task(cleaner.run())
    cleaner.rules_written()
    await asyncio.sleep(0.02)
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


async def test_changes_are_written_while_flows_cannot_be_deleted(command: Command) -> None:
    api, writer = MemoryAPI(), RecordingWriter()
    for each in dns("10.244.1.2", "10.244.1.3"):
        api.put(each)
    async with proxying(api, writer):
        await until(lambda: command.lists)
        command.going.clear()
        api.put(dns("10.244.1.3")[1])
        await until(lambda: command.under_way)
        api.put(service("web", "10.96.5.9"))
        api.put(slice_of("web", "10.244.1.7"))
        await until(lambda: "10.244.1.7" in str(writer.tables))
        assert not command.deleted
        command.going.set()
        await until(lambda: command.deleted)
    assert command.deleted[0][-4:] == ["--reply-src", "10.244.1.2", "--reply-port-src", "5353"]


async def test_flows_are_deleted_when_the_rules_are_written_and_not_before(command: Command) -> None:
    class Refusing(RecordingWriter):
        refuse = False

        async def apply(self, *arguments: Any, **options: Any) -> Any:
            if self.refuse:
                raise WriteError("no space")
            return await super().apply(*arguments, **options)

    api, writer = MemoryAPI(), Refusing()
    for each in dns("10.244.1.2", "10.244.1.3"):
        api.put(each)
    async with proxying(api, writer):
        writer.refuse = True
        api.put(dns("10.244.1.3")[1])
        await asyncio.sleep(0.1)
        assert not command.deleted
        writer.refuse = False
        api.put(service("web", "10.96.5.9"))
        await until(lambda: command.deleted)


async def test_an_unforeseen_error_ends_neither_the_cleaner_nor_the_proxy(command: Command) -> None:
    api, writer = MemoryAPI(), RecordingWriter()
    for each in dns("10.244.1.2", "10.244.1.3"):
        api.put(each)
    command.errors = [ValueError("a bug")]
    async with proxying(api, writer):
        await until(lambda: not command.errors)
        api.put(dns("10.244.1.3")[1])
        await until(lambda: command.deleted)
        assert "10.244.1.2" not in str(writer.tables)


async def test_deletions_run_a_few_at_a_time_and_the_same_one_once(command: Command) -> None:
    flows = [
        ["-f", "ipv4", "-p", "udp", "--orig-dst", "10.96.5.3", "--orig-port-dst", str(n)] for n in range(MAX_UNLISTED)
    ]
    async with cleaning() as cleaner:
        command.going.clear()
        cleaner.add(flows)
        cleaner.add(flows)
        cleaner.rules_written()
        await until(lambda: command.under_way == CONCURRENT)
        command.going.set()
        await until(lambda: len(command.deleted) == MAX_UNLISTED)
        await asyncio.sleep(0.05)
    assert len(command.deleted) == MAX_UNLISTED and command.most == CONCURRENT


async def test_of_many_only_those_that_lead_somewhere_are_deleted(command: Command) -> None:
    base = ["-f", "ipv4", "-p", "udp"]
    to_dns, port_gone = [*base, "--orig-dst", "10.96.5.3", "--orig-port-dst", "53"], ["--reply-port-src", "5353"]
    gone = [[*to_dns, "--reply-src", f"10.244.{number >> 8}.{number & 255}", *port_gone] for number in range(2000)]
    node_port = [*base, "--orig-port-dst", "30053"]
    command.listed = (
        "udp 17 29 src=10.0.0.1 dst=10.96.5.3 sport=1 dport=53 src=10.244.1.2 dst=10.0.0.1 sport=5353 dport=1 use=1\n"
        "udp 17 29 src=10.0.0.1 dst=10.96.5.3 sport=2 dport=53 src=10.244.99.2 dst=10.0.0.1 sport=5353 dport=2 use=1\n"
        "udp 17 29 src=10.0.0.1 dst=192.0.2.1 sport=3 dport=30053 src=192.0.2.1 dst=10.0.0.1 sport=30053 dport=3 use=1\n"
    )
    async with cleaning() as cleaner:
        cleaner.add([*gone, node_port])
        cleaner.rules_written()
        await until(lambda: len(command.deleted) == 2)
        await asyncio.sleep(0.05)
    assert sorted(command.deleted) == sorted([gone[258], node_port])


async def test_a_missing_conntrack_command_is_logged_once_in_each_cleanup(
    command: Command, caplog: pytest.LogCaptureFixture
) -> None:
    command.errors = [CommandError(["conntrack"], "No such file or directory") for _ in range(20)]
    async with cleaning() as cleaner:
        cleaner.add([["-f", "ipv4", "-p", "udp", "--orig-port-dst", str(n)] for n in range(10)])
        cleaner.rules_written()
        await asyncio.sleep(0.1)
    assert len([r for r in caplog.records if "stale flows stay" in r.getMessage()]) == 1


async def test_more_than_can_be_remembered_is_swept(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_cleaner, "MAX_QUEUED", 10)
    ports = {"default/dns": plan_service(*dns_service(), [dns("10.244.1.2")[1]])}
    command.listed = (
        "udp 17 29 src=10.0.0.1 dst=10.96.5.3 sport=2 dport=53 src=10.244.9.9 dst=10.0.0.1 sport=5353 dport=2 use=1\n"
    )
    async with cleaning(ports) as cleaner:
        await until(lambda: len(command.deleted) == 1)
        for number in range(100):
            cleaner.add([["-f", "ipv4", "-p", "udp", "--orig-port-dst", str(number)]])
        assert len(cleaner._waiting) <= 10
        cleaner.rules_written()
        await until(lambda: len(command.deleted) > 1)
    assert "10.96.5.3" in command.deleted[1]


def test_flows_of_an_earlier_life_to_node_ports_are_found() -> None:
    ports = plan_service(
        service("dns", "10.96.5.3", port("dns", 53, "UDP", node_port=30053), type="NodePort"),
        [slice_of("dns", "10.244.1.2", ports={"dns": 5353}, protocol="UDP")],
    )
    lines = [
        "udp 17 29 src=10.0.0.1 dst=192.0.2.1 sport=1 dport=30053 src=10.244.1.2 dst=192.0.2.1 sport=5353 dport=1 use=1",
        "udp 17 29 src=10.0.0.1 dst=192.0.2.1 sport=2 dport=30053 src=10.244.1.9 dst=192.0.2.1 sport=5353 dport=2 use=1",
        "udp 17 29 src=10.0.0.1 dst=192.0.2.1 sport=3 dport=30053 [UNREPLIED] src=192.0.2.1 dst=10.0.0.1 sport=30053 dport=3",
        "udp 17 29 src=10.0.0.1 dst=192.0.2.1 sport=4 dport=30054 src=10.244.1.9 dst=192.0.2.1 sport=5353 dport=4 use=1",
        "udp 17 29 src=fd00::9 dst=fd00::1 sport=5 dport=30053 src=fd00::5 dst=fd00::9 sport=5353 dport=5 use=1",
    ]
    stale = conntrack.stale_entries("\n".join(lines).encode(), conntrack.wanted_endpoints(ports))
    assert [each[each.index("--orig-port-src") + 1] for each in stale] == ["2", "3"]


async def test_a_full_table_is_read_in_parts(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop neither decodes nor splits what a full table prints."""
    line = (
        "udp 17 29 src=10.0.0.1 dst=10.96.5.3 sport=%d dport=53 src=10.244.9.9 dst=10.0.0.1 sport=5353 dport=%d use=1\n"
    )
    command.listed = "".join(line % (n, n) for n in range(5000))
    command.piece = 128 << 10
    sizes, matched = list[int](), conntrack._matched
    loop_thread = threading.get_ident()

    def measured(listed: bytes, *rest: Any) -> list[tuple[str, ...]]:
        assert threading.get_ident() != loop_thread
        sizes.append(len(listed))
        return matched(listed, *rest)

    monkeypatch.setattr(conntrack, "_matched", measured)
    wanted = ["-f", "ipv4", "-p", "udp", "--orig-dst", "10.96.5.3", "--orig-port-dst", "53"]
    wanted += ["--reply-src", "10.244.9.9", "--reply-port-src", "5353"]
    assert await conntrack.existing([wanted, [*wanted[:-1], "5354"]]) == [wanted]
    assert len(sizes) > 2 and max(sizes) < 140 << 10 and sum(sizes) == len(command.listed)
