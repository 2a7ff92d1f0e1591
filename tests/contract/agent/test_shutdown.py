"""The machine goes down: logind (a stand-in on a real bus) tells, and waits until the pods have ended in their order."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from dbus_fast import Message
from dbus_fast.aio import MessageBus

from agent.config import ShutdownPeriod
from agent.shutdown import bus_messages
from agent.shutdown import logind as login
from agent.shutdown.bus import BUS, Bus
from agent.shutdown.state import load
from cri.fake import FakeRuntime
from kube.api import core_v1, meta_v1, scheduling_v1
from kube.clock import SYSTEM
from tests.support.bus_messages import encoded, strings, text
from tests.support.control import ApiUnderTest
from tests.support.fake_node import calls, create
from tests.support.logind import Logind, logind
from tests.support.node import FastClock, NodeUnderTest, agent_node, eventually

PERIODS = (ShutdownPeriod(0, 20), ShutdownPeriod(1000, 10))


@pytest.fixture
async def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Logind]:
    async with logind(tmp_path) as manager:
        monkeypatch.setattr(login.Logind.connect.__func__, "__defaults__", (manager.drop_in,))
        yield manager


@pytest.fixture
async def node(
    tmp_path: Path, runtime: FakeRuntime, api: ApiUnderTest, clock: FastClock, manager: Logind
) -> AsyncIterator[NodeUnderTest]:
    changes = {"shutdown_periods": PERIODS, "system_bus": manager.address}
    async with agent_node(tmp_path, runtime, api, clock=clock, **changes) as node:
        yield node


def ready_condition(node: core_v1.Node) -> tuple[str, str, str]:
    found = next(c for c in node.status.conditions if c.type == "Ready")
    return found.status, found.reason or "", found.message or ""


async def test_pods_end_by_priority_before_the_machine_does(
    node: NodeUnderTest, runtime: FakeRuntime, manager: Logind
) -> None:
    high = scheduling_v1.PriorityClass(metadata=meta_v1.ObjectMeta(name="high"), value=5000)
    await node.client.create(high)
    await create(node, "low", terminationGracePeriodSeconds=3600)
    await create(node, "quick", terminationGracePeriodSeconds=5)
    await create(node, "high", terminationGracePeriodSeconds=3600, priorityClassName="high")
    for name in ("low", "quick", "high"):
        await node.ready(name)
    names = {c.status.id: c.status.labels["io.kubernetes.pod.name"] for c in runtime.containers.containers.values()}
    await manager.shut_down()
    stops = [(names[request.container_id], request.timeout) for request in calls(runtime, "StopContainer")]
    assert sorted(stops[:2]) == [("low", 20), ("quick", 5)] and stops[2:] == [("high", 10)]
    for name in ("low", "quick", "high"):
        status = (await node.wait(name, lambda p: p.status.phase == "Failed")).status
        assert status.reason == "Terminated"
        assert status.message == "Pod was terminated in response to imminent node shutdown."
        condition = next(c for c in status.conditions if c.type == "DisruptionTarget")
        assert (condition.status, condition.reason) == ("True", "TerminationByKubelet")
    began, ended = load(node.config.root_dir)
    assert began and ended

    async def is_reported() -> bool:
        now = await node.client.get(core_v1.Node, node.config.node_name)
        return ready_condition(now) == ("False", "KubeletNotReady", "node is shutting down")

    await eventually(is_reported, "the node does not say that it is shutting down")
    await create(node, "late")
    late = await node.wait("late", lambda p: p.status.phase == "Failed")
    assert late.status.reason == "NodeShutdown"
    assert late.status.message == "Pod was rejected: Pod was rejected as the node is shutting down."
    manager.call_off()

    async def ready() -> bool:
        return ready_condition(await node.client.get(core_v1.Node, node.config.node_name))[0] == "True"

    await eventually(ready, "the node is not ready again")
    await create(node, "after")
    await node.ready("after")
    await manager.inhibited()


async def test_a_pod_that_does_not_end_holds_the_shutdown_for_its_period_only(
    node: NodeUnderTest, runtime: FakeRuntime, manager: Logind, clock: FastClock
) -> None:
    await create(node, "deaf", terminationGracePeriodSeconds=3600)
    await node.ready("deaf")
    runtime.failures.delay("StopContainer", 100_000.0)
    began = clock.monotonic()
    await manager.shut_down()
    assert clock.monotonic() - began >= 20.0


async def test_logind_is_made_to_wait_as_long_as_pods_need(node: NodeUnderTest, manager: Logind) -> None:
    await manager.inhibited()
    assert manager.login.received == [("shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay")]
    assert manager.login.delay_max_usec == 30_000_000
    assert "InhibitDelayMaxSec=30" in manager.drop_in.read_text()


async def test_logind_says_whether_a_shutdown_was_announced(manager: Logind) -> None:
    mine = await login.Logind.connect(manager.address, SYSTEM, manager.drop_in)
    try:
        assert not await mine.shuts_down()
        manager.login.preparing = True
        assert await mine.shuts_down()
    finally:
        mine.close()


async def test_a_signal_of_another_program_is_ignored(manager: Logind) -> None:
    """Any account may send signals on the system bus, to everybody or to one process."""
    mine = await login.Logind.connect(manager.address, SYSTEM, manager.drop_in)
    other = await MessageBus(bus_address=manager.address).connect()
    try:
        path, interface = "/org/freedesktop/login1", "org.freedesktop.login1.Manager"
        for destination in (None, mine._bus.unique_name):
            forged = Message.new_signal(path, interface, "PrepareForShutdown", "b", [True])
            forged.destination = destination
            await other.send(forged)
        await other.call(Message("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "GetId"))
        manager.call_off()
        async with asyncio.timeout(30):
            async for began in mine.events():
                assert began is False
                break
    finally:
        other.disconnect()
        mine.close()


async def next_event(mine: login.Logind) -> bool | None:
    async with asyncio.timeout(30):
        async for began in mine.events():
            return began
    raise AssertionError("the bus is gone")


async def test_signals_of_a_logind_that_started_later_count(tmp_path: Path, manager: Logind) -> None:
    mine = await login.Logind.connect(manager.address, SYSTEM, manager.drop_in)
    try:
        await manager.restart()
        manager.call_off()
        assert await next_event(mine) is None, "what it knows is to be read"
        assert await next_event(mine) is False
    finally:
        mine.close()


async def test_descriptors_in_messages_of_others_are_not_kept(manager: Logind) -> None:
    mine = await login.Logind.connect(manager.address, SYSTEM, manager.drop_in)
    other = await MessageBus(bus_address=manager.address, negotiate_unix_fd=True).connect()
    descriptors = [os.open("/dev/null", os.O_RDONLY) for _ in range(16)]
    try:
        await mine.inhibit()
        before = len(os.listdir("/proc/self/fd"))
        for name in ("PrepareForShutdown", "Other"):
            for _ in range(10):
                sent = Message.new_signal("/a", "org.freedesktop.login1.Manager", name, "h" * 16, list(range(16)))
                sent.destination, sent.unix_fds = mine._bus.unique_name, descriptors
                await other.send(sent)
        await other.call(Message("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "GetId"))
        manager.call_off()
        assert await next_event(mine) is False
        assert len(os.listdir("/proc/self/fd")) <= before
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        other.disconnect()
        mine.close()


def signal(to: str, member: str, size: int) -> bytes:
    """Build a signal in logind's name with so many bytes."""
    manager = "org.freedesktop.login1.Manager"
    fields = text(1, "o", "/a"), text(2, "s", manager), text(3, "s", member), text(6, "s", to), text(8, "g", "s")
    return encoded(bus_messages.SIGNAL, *fields, body=strings("x" * size))


async def send(bus: Bus, data: bytes) -> None:
    async with bus._sending:
        await asyncio.get_running_loop().sock_sendall(bus._socket, data)


async def test_a_message_that_is_too_large_is_discarded_while_it_is_received(
    manager: Logind, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = await login.Logind.connect(manager.address, SYSTEM, manager.drop_in)
    other = await Bus.connect(manager.address)
    decoded, decode = list[int](), bus_messages.decode

    def count(data: bytes) -> bus_messages.Message:
        decoded.append(len(data))
        return decode(data)

    monkeypatch.setattr(bus_messages, "decode", count)
    try:
        for _ in range(3):
            await send(other, signal(mine._bus.unique_name, "PrepareForShutdown", 4 << 20))
        await other.call(BUS, "GetId")
        manager.call_off()
        assert await next_event(mine) is False
        assert max(decoded) < 1024 and len(mine._bus._buffer) == 0
    finally:
        other.close()
        mine.close()


async def test_a_lock_is_taken_among_large_messages_of_others_to_its_connection(manager: Logind) -> None:
    """The bus announces each new connection to everybody."""
    sending, sent = list[asyncio.Task[None]](), list[str]()

    def send_to_new(message: bus_messages.Message) -> None:
        name, _, owner = map(str, message.values())
        if owner and name.startswith(":"):
            sent.append(name)
            sending.append(asyncio.create_task(send(other, signal(name, "Any", 70_000))))

    other = await Bus.connect(manager.address, members=["NameOwnerChanged"], received=send_to_new)
    await other.call(BUS, "AddMatch", "s", [f"type='signal',sender='{BUS.name}',member='NameOwnerChanged'"])
    mine = await login.Logind.connect(manager.address, SYSTEM, manager.drop_in)
    try:
        for _ in range(10):
            await mine.inhibit()
        assert len(sent) == 11 and mine._lock is not None
        assert not os.get_inheritable(mine._lock) and os.readlink(f"/proc/self/fd/{mine._lock}").startswith("pipe:")
    finally:
        other.close()
        mine.close()
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        for lock in manager.login.locks:
            os.close(lock)
