"""A client cannot hold the event loop with the frames of a WebSocket, nor the memory."""

import asyncio
import struct
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from agent.streaming import channels, port_forward, remote_command, spdy, websocket
from agent.streaming.upgrade import Stream
from agent.streaming.websocket import Fragment, WebSocket
from kube.serving.frames import CONTROL_BURST, CONTROL_PER_SECOND, FRAMES_PER_ITERATION, ControlFrames, SessionYield

MASK = b"\x01\x02\x03\x04"
PING = b"\x89\x80" + MASK
BYTE = b"\x82\x81" + MASK + b"\x01"  # a binary message of one zero byte
GOODBYE = b"\x88\x80" + MASK
HANDSHAKE = [
    ("host", "node"),
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("sec-websocket-version", "13"),
]


class Writer:
    """Written bytes, one entry a write."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.transport = self

    def write(self, data: bytes) -> None:
        self.written.append(data)

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        pass

    async def wait_closed(self) -> None:
        pass

    def abort(self) -> None:
        pass


def _stream(sent: bytes) -> tuple[Stream, Writer]:
    reader, writer = asyncio.StreamReader(), Writer()
    reader.feed_data(sent)
    return Stream(reader, cast(Any, writer)), writer


async def _socket(sent: bytes, session_yield: SessionYield | None = None) -> tuple[WebSocket, list[bytes]]:
    stream, writer = _stream(sent)
    socket = await websocket.accept(stream, "/exec", HANDSHAKE, None, session_yield)
    writer.written.clear()
    return socket, writer.written


async def _most_in_a_round(work: list[Coroutine[Any, Any, None]], done: Callable[[], int]) -> int:
    """Run coroutines to their ends; return by how much `done` grew at most in a round of the event loop after the first."""
    tasks = [asyncio.create_task(one) for one in work]
    await asyncio.sleep(0)  # all have begun
    most, before = 0, done()
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        most, before = max(most, done() - before), done()
    await asyncio.gather(*tasks)
    return most


def _code(written: list[bytes]) -> int:
    """Return the code of the close frame, the last thing that was written."""
    frame = written[-1][written[-1].rindex(b"\x88") :]
    return int(struct.unpack_from(">H", frame, 2)[0])


@pytest.mark.parametrize("sessions", [1, 8])
async def test_small_messages_of_all_sessions_leave_the_event_loop_to_others(sessions: int) -> None:
    session_yield, received = SessionYield(), [0] * sessions

    async def session(number: int) -> None:
        socket, _ = await _socket(BYTE * 2000 + GOODBYE, session_yield)
        while await socket.receive() is not None:
            received[number] += 1

    most = await _most_in_a_round([session(number) for number in range(sessions)], lambda: sum(received))
    assert received == [2000] * sessions
    assert 0 < most <= FRAMES_PER_ITERATION


async def test_pings_are_answered_together_and_too_many_end_the_session() -> None:
    socket, written = await _socket(PING * CONTROL_BURST + BYTE + PING * 10_000)
    assert await socket.receive() == Fragment(b"\0")
    assert len(written) <= 2
    assert await socket.receive() is None
    assert _code(written) == websocket.POLICY_VIOLATION


def test_control_frames_may_go_on_for_ever_at_their_rate() -> None:
    frames = ControlFrames()
    assert all(frames.allow(number / CONTROL_PER_SECOND) for number in range(5 * CONTROL_BURST))
    assert [frames.allow(1000.0) for _ in range(CONTROL_BURST + 1)] == [True] * CONTROL_BURST + [False]


async def test_small_frames_of_a_forwarded_port_leave_the_event_loop_to_others() -> None:
    runtime = spdy.Connection(client=False)
    for _ in range(2000):
        runtime.send(3, b"x")
    stream, client = _stream(b"")
    socket = await websocket.accept(stream, "/portForward", HANDSHAKE, None)
    backend, _ = _stream(runtime.take())
    backend.reader.feed_eof()
    spoken = channels.choose(["v4.channel.k8s.io"])
    assert spoken is not None
    work = port_forward.forward(socket, spoken, backend, [80])
    assert await _most_in_a_round([work], lambda: len(client.written)) <= FRAMES_PER_ITERATION + 2
    assert len(client.written) > 2000


async def test_small_frames_of_a_command_leave_the_event_loop_to_others() -> None:
    runtime = spdy.Connection(client=False)
    for _ in range(2000):
        runtime.send(3, b"x")
    stream, client = _stream(b"")
    socket = await websocket.accept(stream, "/exec", HANDSHAKE, None)
    backend, _ = _stream(runtime.take())
    backend.reader.feed_eof()
    spoken = channels.choose(["v5.channel.k8s.io"])
    assert spoken is not None
    work = remote_command.translate(socket, spoken, backend, remote_command.StreamOptions(stdout=True))
    assert await _most_in_a_round([work], lambda: len(client.written)) <= FRAMES_PER_ITERATION + 2
    assert len(client.written) > 2000
