"""Data from the client of a log over a WebSocket cannot block the API server's event loop."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

from control.http.exchange import Request, Stream
from control.server.socket_stream import AcceptedHandshake, accept_handshake, over_socket
from kube.serving.frames import CONTROL_BURST, FRAME_CHUNK, SessionYield

MASK = b"\x01\x02\x03\x04"
PING, EMPTY, GOODBYE = b"\x89\x80" + MASK, b"\x82\x80" + MASK, b"\x88\x80" + MASK
HEADERS = {
    b"host": b"api",
    b"connection": b"Upgrade",
    b"upgrade": b"websocket",
    b"sec-websocket-key": b"dGhlIHNhbXBsZSBub25jZQ==",
    b"sec-websocket-version": b"13",
}


class Connection:
    """A connection whose client sends `sent` at once and says no more."""

    def __init__(self, sent: bytes) -> None:
        self._sent = sent
        self.transport = self.flow = self
        self.written: list[bytes] = []
        self.reading = True

    def takeover(self, on_data: Any, on_lost: Any) -> "Connection":
        on_data(self._sent)
        return self

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        pass

    async def drain(self) -> None:
        pass


async def _silence() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def _serve(sent: bytes) -> tuple[Connection, int]:
    """Answer a client; return the connection and for how many rounds of the event loop it was not read."""
    connection = Connection(sent)
    request = cast(Request, SimpleNamespace(headers=HEADERS))
    handshake = accept_handshake(request)
    assert isinstance(handshake, AcceptedHandshake)
    upgrade = over_socket(handshake, Stream(_silence(), b"text/plain"), SessionYield())
    task = asyncio.create_task(cast(Any, upgrade).splice(connection))
    rounds = 0
    while not task.done():
        await asyncio.sleep(0)
        rounds += not connection.reading
    await task
    return connection, rounds


async def test_small_frames_are_read_a_few_in_a_round_of_the_loop() -> None:
    connection, rounds = await _serve(EMPTY * 10_000 + GOODBYE)
    assert rounds >= 10_000 * len(EMPTY) // FRAME_CHUNK
    assert b"".join(connection.written[1:]) == b"\x88\x00"


async def test_a_flood_of_pings_ends_the_session() -> None:
    connection, _ = await _serve(PING * CONTROL_BURST * 100)
    assert connection.written[-1].endswith(b"\x88\x02\x03\xf0")
    assert len(connection.written) == 2
