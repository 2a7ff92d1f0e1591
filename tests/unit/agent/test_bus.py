"""A connection to the message bus: owners of file descriptors, and answers that come too late."""

from __future__ import annotations

import array
import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.shutdown import bus as bus_module
from agent.shutdown import logind
from agent.shutdown.bus import BUS, Bus, BusError
from agent.shutdown.bus_messages import REPLY, SIGNAL, Address, Message
from kube.clock import SYSTEM
from tests.support.bus_messages import encoded, number, strings, text


def reply(serial: int, descriptors: int) -> bytes:
    return encoded(REPLY, number(5, serial), number(9, descriptors))


class OtherEnd:
    """The bus's end of a connection, and pipes whose ends it sends."""

    def __init__(self) -> None:
        self.socket, ours = socket.socketpair()
        ours.setblocking(False)
        self.socket.setblocking(False)
        self.bus = Bus(ours, descriptors=True)
        asyncio.get_running_loop().add_reader(ours, self.bus._read)
        self.pipes = list[int]()

    async def send(self, data: bytes, descriptors: int = 0) -> list[int]:
        """Send a message with ends of pipes; return the other ends."""
        pipes = [os.pipe() for _ in range(descriptors)]
        self.pipes += [reading for reading, _ in pipes]
        sent = self.socket.sendmsg(
            [data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [w for _, w in pipes]))] if pipes else []
        )
        for _, writing in pipes:
            os.close(writing)
        await asyncio.get_running_loop().sock_sendall(self.socket, data[sent:])
        return [reading for reading, _ in pipes]

    def close(self) -> None:
        self.bus.close()
        self.socket.close()
        for pipe in self.pipes:
            os.close(pipe)


@pytest.fixture
async def other() -> AsyncIterator[OtherEnd]:
    made = OtherEnd()
    yield made
    made.close()


def ended(pipes: list[int]) -> list[int]:
    """Return the pipes whose other end is closed."""
    for pipe in pipes:
        os.set_blocking(pipe, False)

    def is_ended(pipe: int) -> bool:
        try:
            return os.read(pipe, 1) == b""
        except BlockingIOError:
            return False

    return [pipe for pipe in pipes if is_ended(pipe)]


async def call(other: OtherEnd) -> asyncio.Task[Message]:
    """Begin a call; its serial number is 1."""
    task = asyncio.create_task(other.bus.call(Address("a", "/a", "a.A"), "Get"))
    while 1 not in other.bus._calls:
        await asyncio.sleep(0)
    return task


UNKNOWN = b"\x80\5a{sv}\0"
FOREIGN = {
    "small": encoded(SIGNAL, number(9, 2)),
    "damaged": encoded(SIGNAL, UNKNOWN + bytes(9)),
    "large": encoded(SIGNAL, number(9, 2), body=bytes(200_000)),
    "large header": encoded(SIGNAL, text(1, "o", "/" * 300_000), number(9, 2)),
}


@pytest.mark.parametrize("kinds", [*([kind] for kind in FOREIGN), list(FOREIGN), [*FOREIGN] * 3])
async def test_a_descriptor_is_that_of_the_answer_among_messages_of_others(other: OtherEnd, kinds: list[str]) -> None:
    task = await call(other)
    foreign = list[int]()
    for kind in kinds:
        foreign += await other.send(FOREIGN[kind], 2)
        await other.send(FOREIGN[kind])
    (own,) = await other.send(reply(1, 1), 1)
    for kind in kinds:
        foreign += await other.send(FOREIGN[kind], 2)
    async with asyncio.timeout(30):
        answer = await task
        while other.bus._received_bytes < sum(3 * len(FOREIGN[kind]) for kind in kinds) + len(reply(1, 1)):
            await asyncio.sleep(0)
    assert ended(foreign) == foreign and ended([own]) == []
    os.close(answer.descriptors[0])
    assert ended([own]) == [own] and not other.bus.gone.is_set()
    assert (other.bus._descriptors, bytes(other.bus._buffer)) == ([], b"")


async def test_an_answer_without_its_descriptors_is_an_error(other: OtherEnd) -> None:
    """The kernel discards those that the process has no room for."""
    task = await call(other)
    pipes = await other.send(reply(1, 2), 1)
    with pytest.raises(BusError, match="file descriptors"):
        await task
    assert ended(pipes) == pipes


@pytest.mark.parametrize("seconds", [0.0, None])
async def test_a_lock_that_comes_together_with_the_timeout_or_a_cancellation_is_given_back(
    other: OtherEnd, monkeypatch: pytest.MonkeyPatch, seconds: float | None
) -> None:
    if seconds is not None:
        monkeypatch.setattr(bus_module, "_SECONDS", seconds)
    reading, writing = os.pipe()
    other.pipes.append(reading)
    answer = Message(REPLY, "", "", "", "", 1, "", 1, "<", b"", [writing])
    task = asyncio.create_task(other.bus.call(Address("a", "/a", "a.A"), "Get"))
    # After the first step of the call, and before its timeout.
    asyncio.get_running_loop().call_soon(lambda: other.bus._calls[1].set_result(answer))
    if seconds is None:
        asyncio.get_running_loop().call_soon(task.cancel)
    with pytest.raises((BusError, asyncio.CancelledError)):
        await task
    assert ended([reading]) == [reading]


async def test_a_logind_that_is_announced_before_the_answer_with_the_earlier_one_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    logind_name = "org.freedesktop.login1"

    def message(*values: str) -> Message:
        body, signature = strings(*values), "s" * len(values)
        return Message(SIGNAL, BUS.name, BUS.interface, "NameOwnerChanged", "", 0, signature, 0, "<", body)

    class Early:
        received: Any

        async def call(self, to: Address, member: str, *_: object) -> Message:
            if member == "GetNameOwner":
                self.received(message(logind_name, ":1.1", ":1.2"))
            return message(":1.1")

    async def connect(address: str, *, members: object, received: Any) -> Any:
        made = Early()
        made.received = received
        return made

    monkeypatch.setattr(Bus, "connect", connect)
    found = await logind.Logind.connect("unix:path=/none", SYSTEM, tmp_path)
    assert found._owner == ":1.2"
