"""The server's side of a WebSocket on a connection that is taken over from HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from websockets.frames import Opcode

from kube.serving.frames import FRAME_CHUNK
from kube.serving.websocket import ServerSocket, answer, offered

MASK = b"\x01\x02\x03\x04"
HEADERS = [
    ("host", "h"),
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("sec-websocket-version", "13"),
    ("sec-websocket-protocol", "a, SPDY/3.1+b"),
]


def frame(first: int, data: bytes = b"") -> bytes:
    masked = bytes(each ^ MASK[index % 4] for index, each in enumerate(data))
    return bytes([first, 0x80 | len(data)]) + MASK + masked


class Connection:
    """A connection that may be taken over, whose client has sent `early` with its request."""

    def __init__(self, early: bytes = b"") -> None:
        self.transport = self.flow = self
        self.early, self.written, self.reading, self.closed = early, b"", True, False
        self.send: Callable[[bytes], None] = lambda data: None

    def takeover(self, on_data: Callable[[bytes], None], on_lost: Callable[[], None]) -> Connection:
        self.send, self.lose = on_data, on_lost
        if self.early:
            on_data(self.early)
        return self

    def write(self, data: bytes) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    async def drain(self) -> None: ...


def opened(connection: Connection) -> ServerSocket:
    return ServerSocket(cast(Any, connection), answer(HEADERS, "a", 1 << 16))


def test_a_handshake_is_answered_with_the_chosen_subprotocol() -> None:
    assert offered(HEADERS) == ["a", "SPDY/3.1+b"] and offered([("sec-websocket-protocol", ", ,")]) == []
    accepted = answer(HEADERS, "SPDY/3.1+b", None)
    assert accepted.response.startswith(b"HTTP/1.1 101 ") and not accepted.failure
    assert b"Sec-WebSocket-Protocol: SPDY/3.1+b\r\n" in accepted.response
    assert b"Sec-WebSocket-Protocol" not in answer(HEADERS, "", None).response
    refused = answer(HEADERS[:3], "", None)
    assert refused.failure and refused.response.startswith(b"HTTP/1.1 4")


async def test_a_frame_that_comes_with_the_handshake_is_received() -> None:
    socket = opened(Connection(frame(0x82, b"early")))
    found = await socket.receive()
    assert found is not None and (found.opcode, bytes(found.data)) == (Opcode.BINARY, b"early")


async def test_a_connection_is_not_read_on_before_what_came_is_received() -> None:
    connection = Connection()
    socket = opened(connection)
    connection.send(frame(0x82, b"x" * 100) * 100)
    assert not connection.reading
    for _ in range(100):
        assert await socket.receive() is not None
        assert not connection.reading
    waiting = asyncio.create_task(socket.receive())
    for _ in range(100 * 106 // FRAME_CHUNK + 2):
        await asyncio.sleep(0)
    assert connection.reading
    connection.send(frame(0x88))
    assert await waiting is None


async def test_pings_are_answered_and_a_client_that_has_gone_ends_the_socket() -> None:
    connection = Connection()
    socket = opened(connection)
    connection.send(frame(0x89, b"ping") + frame(0x81, b"text"))
    found = await socket.receive()
    assert found is not None and found.opcode is Opcode.TEXT and connection.written.endswith(b"\x8a\x04ping")
    connection.lose()
    assert await socket.receive() is None
    with pytest.raises(ConnectionResetError):
        await socket.send(b"x")


@pytest.mark.parametrize("answers", [True, False])
async def test_a_close_waits_for_the_client_for_a_limited_time(answers: bool) -> None:
    connection = Connection()
    socket = opened(connection)
    closing = asyncio.create_task(socket.close(30.0 if answers else 0.0))
    await asyncio.sleep(0)
    if answers:
        assert not connection.closed
        connection.send(frame(0x82, b"on its way") + frame(0x88, b"\x03\xe8"))
    await asyncio.wait_for(closing, 20)
    assert connection.closed and connection.written.endswith(b"\x88\x02\x03\xe8")
    with pytest.raises(ConnectionResetError):
        await socket.send(b"x")
