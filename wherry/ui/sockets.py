"""The server's side of a WebSocket (RFC 6455, by the websockets package without its I/O).

What the browser sends is parsed as it is taken: the connection is not read on while a message waits. Pings are answered.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable

from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from kube.errors import StatusError
from wherry.ui.protocol import PageProtocol

MOST_BYTES = 64 << 10
"""Bytes of a message from the browser."""
NORMAL = 1000
GOODBYE = 10.0
"""Seconds that a browser has to take what is on its way, and to answer the close."""
_SUBPROTOCOL = "sec-websocket-protocol"


class PageSocket:
    """A WebSocket that a browser opened, on a connection that is taken from HTTP."""

    def __init__(self, protocol: PageProtocol, parser: ServerProtocol, response: bytes) -> None:
        self._protocol, self._parser = protocol, parser
        self._frames: deque[Frame] = deque()
        self._came, self._lost = asyncio.Event(), False
        self._transport = protocol.takeover(self._received, self._ended)
        self._transport.write(response)

    def _received(self, data: bytes) -> None:
        with contextlib.suppress(RuntimeError):  # it is closed
            self._transport.pause_reading()
        self._parser.receive_data(data)
        self._frames.extend(each for each in self._parser.events_received() if isinstance(each, Frame))
        self._flush()
        self._came.set()

    def _ended(self) -> None:
        self._lost = True
        self._came.set()

    async def receive(self) -> bytes | None:
        """Return the next message; None at the end. A message in several frames, or a text, ends the connection."""
        while True:
            while self._frames:
                frame = self._frames.popleft()
                if frame.opcode in (Opcode.PING, Opcode.PONG):
                    continue
                return bytes(frame.data) if frame.opcode is Opcode.BINARY and frame.fin else None
            if self._lost or self._parser.state is State.CLOSED or self._parser.parser_exc is not None:
                return None
            self._came.clear()
            await self._protocol.flow.drain()  # the answers to pings, too, have to be read
            with contextlib.suppress(RuntimeError):
                self._transport.resume_reading()
            await self._came.wait()

    async def send(self, data: bytes) -> None:
        """Send a message, and wait until the browser takes it. Raises ConnectionResetError when it has left."""
        if self._lost:
            raise ConnectionResetError("the browser has left")
        try:
            self._parser.send_binary(data)
        except InvalidState as error:
            raise ConnectionResetError("the WebSocket is closed") from error
        self._flush()
        await self._protocol.flow.drain()

    async def close(self) -> None:
        """Close the connection, when the browser has answered the close or a while later.

        Closing with unread bytes would reset the connection, and the browser would lose what is on its way.
        """
        with contextlib.suppress(InvalidState):
            self._parser.send_close(NORMAL)
        self._flush()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE):
                    while not self._lost and self._parser.state is not State.CLOSED and self._parser.parser_exc is None:
                        self._frames.clear()
                        self._came.clear()
                        with contextlib.suppress(RuntimeError):
                            self._transport.resume_reading()
                        await self._came.wait()
        finally:
            self._transport.close()

    def _flush(self) -> None:
        data = b"".join(self._parser.data_to_send())
        if data and not self._lost:
            self._transport.write(data)


def offered(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """Return the subprotocols that a request offers."""
    found = [value.decode("latin-1") for name, value in headers if name.lower() == _SUBPROTOCOL.encode()]
    return [part.strip() for value in found for part in value.split(",") if part.strip()]


def accept(protocol: PageProtocol, headers: Iterable[tuple[bytes, bytes]], subprotocol: str) -> PageSocket:
    """Accept the handshake of a request, with one of the subprotocols that it offers. Raise StatusError 400."""
    parser = ServerProtocol(max_size=MOST_BYTES)
    lines = ["GET / HTTP/1.1"]
    for name, value in headers:
        if name.lower() != _SUBPROTOCOL.encode():
            lines.append(f"{name.decode('latin-1')}: {value.decode('latin-1')}")
    parser.receive_data("\r\n".join([*lines, "", ""]).encode("latin-1"))
    request = next((each for each in parser.events_received() if isinstance(each, Request)), None)
    response = parser.accept(request) if request is not None else None
    if response is None or response.status_code != 101:
        raise StatusError(400, "BadRequest", "this is no handshake of a WebSocket")
    response.headers["Sec-WebSocket-Protocol"] = subprotocol
    parser.send_response(response)
    return PageSocket(protocol, parser, b"".join(parser.data_to_send()))
