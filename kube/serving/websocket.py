"""The server's side of a WebSocket (RFC 6455, by the websockets package without its I/O): its handshake, and a socket.

The HTTP server has read the request, so the handshake is answered here from its headers. Extensions are not offered. A socket
has a connection that is taken over from HTTP: what the client sends is parsed a little at a time, when it is received; the
connection is not read on before. Pings are answered, and control frames limited to a rate (frames.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from kube.serving.frames import FRAME_CHUNK, ControlFrames, FrameCounter, SessionYield
from kube.serving.takeover import TakeoverProtocol

NORMAL, POLICY_VIOLATION = 1000, 1008
SUBPROTOCOL = "sec-websocket-protocol"
Headers = Iterable[tuple[str, str]]
"""Names in lower case, and values."""


class Handshake(NamedTuple):
    """The answer to a handshake: `failure` is why it is refused, "" if it is not; without a response it was none."""

    parser: ServerProtocol
    response: bytes
    failure: str


def offered(headers: Headers) -> list[str]:
    """Return the subprotocols that a client offers, in its order of preference."""
    found = [part.strip() for name, value in headers if name == SUBPROTOCOL for part in value.split(",")]
    return [each for each in found if each]


def answer(
    headers: Headers, subprotocol: str, most_bytes: int | tuple[int | None, int | None] | None, target: str = "/"
) -> Handshake:
    """Answer the handshake of a GET request with one of the subprotocols that it offers, or none ("").

    `most_bytes` is the maximum size of a message, or of a message and of a fragment.
    """
    parser = ServerProtocol(max_size=most_bytes)
    # The package takes only RFC 2616 tokens for subprotocols, which kubectl's SPDY/3.1+portforward.k8s.io is not.
    lines = [f"{name}: {value}" for name, value in headers if name != SUBPROTOCOL]
    parser.receive_data("\r\n".join([f"GET {target} HTTP/1.1", *lines, "", ""]).encode("latin-1"))
    request = next((each for each in parser.events_received() if isinstance(each, Request)), None)
    if request is None:
        return Handshake(parser, b"", "not a WebSocket request")
    response = parser.accept(request)
    accepted = response.status_code == 101
    if accepted and subprotocol:
        response.headers["Sec-WebSocket-Protocol"] = subprotocol
    parser.send_response(response)
    return Handshake(parser, b"".join(parser.data_to_send()), "" if accepted else str(parser.handshake_exc))


class ServerSocket:
    """A WebSocket on a connection that it takes from HTTP."""

    def __init__(
        self, protocol: TakeoverProtocol, accepted: Handshake, session_yield: SessionYield | None = None
    ) -> None:
        """`session_yield` is shared by the sessions that yield the event loop to each other."""
        self._protocol, self._parser = protocol, accepted.parser
        self._data, self._frames = bytearray(), deque[Frame]()
        self._came, self._lost, self._refused = asyncio.Event(), False, False
        self._counter, self._control = FrameCounter(session_yield or SessionYield()), ControlFrames()
        self._transport = protocol.takeover(self._received, self._ended)
        self._transport.write(accepted.response)

    def _received(self, data: bytes) -> None:
        self._data += data
        with contextlib.suppress(RuntimeError):  # it is closed
            self._protocol.transport.pause_reading()
        self._came.set()

    def _ended(self) -> None:
        self._lost = True
        self._came.set()

    async def receive(self) -> Frame | None:
        """Return the next frame of a message; None when the client has closed, has gone or sends too much."""
        while True:
            while self._frames:
                frame = self._frames.popleft()
                await self._counter.count()
                if frame.opcode is Opcode.CLOSE:
                    return None
                if frame.opcode not in (Opcode.PING, Opcode.PONG):
                    return frame
            if self._lost or self._refused or self._parser.parser_exc is not None or self._parser.state is State.CLOSED:
                return None
            if self._data:
                await self._parse()
                continue
            self._came.clear()
            with contextlib.suppress(RuntimeError):  # it is closed
                self._protocol.transport.resume_reading()
            await self._came.wait()

    async def _parse(self) -> None:
        """Parse a part of what came, and send the answers to pings; the client has to read these too."""
        piece = bytes(self._data[:FRAME_CHUNK])
        del self._data[:FRAME_CHUNK]
        self._parser.receive_data(piece)
        frames = [each for each in self._parser.events_received() if isinstance(each, Frame)]
        self._frames.extend(frames)
        now, control = time.monotonic(), [each for each in frames if each.opcode in (Opcode.PING, Opcode.PONG)]
        if not all([self._control.allow(now) for _ in control]):
            self._frames.clear()
            self._refused = True
            with contextlib.suppress(InvalidState):
                self._parser.send_close(POLICY_VIOLATION)
        self._flush()
        await self._protocol.flow.drain()

    async def send(self, data: bytes, *, text: bool = False) -> None:
        """Send a message, and wait until the client takes it. Raise ConnectionResetError when it has gone."""
        if self._lost:
            raise ConnectionResetError("the client has gone")
        try:
            if text:
                self._parser.send_text(data)
            else:
                self._parser.send_binary(data)
        except InvalidState as error:
            raise ConnectionResetError("the WebSocket is closed") from error
        self._flush()
        await self._protocol.flow.drain()

    def send_close(self) -> None:
        """Send a close, which the client answers."""
        with contextlib.suppress(InvalidState):
            self._parser.send_close(NORMAL)
        self._flush()

    async def close(self, seconds: float) -> None:
        """Close the connection, when the client has answered the close or after so many seconds.

        Closing with unread bytes would reset the connection, and the client would lose what is on its way.
        """
        self.send_close()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while await self.receive() is not None:
                        pass
        finally:
            self._transport.close()

    def _flush(self) -> None:
        data = b"".join(self._parser.data_to_send())
        if data and not self._lost:
            self._transport.write(data)
