"""The server's side of a WebSocket over an upgraded connection (RFC 6455, by the websockets package, without its I/O).

The HTTP server hands over the raw connection after authentication and authorization, so the handshake is done here, from the
request that it read. Pings are answered; extensions are not offered. What a client may send of tiny frames is limited
(kube.serving.frames): control frames to a rate, and of many sessions whose frames are waiting each has its turn.
"""

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Sequence

from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from agent.streaming.upgrade import Stream
from kube.serving.frames import FRAME_CHUNK, ControlFrames, SessionTurn, SessionTurns

_MAX_MESSAGE = 16 << 20
_MESSAGES = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)

NORMAL, POLICY_VIOLATION = 1000, 1008


class HandshakeError(Exception):
    """The client's request is no proper WebSocket handshake; it was answered and the connection closed."""


class WebSocket:
    """A connection that carries messages."""

    def __init__(self, stream: Stream, protocol: ServerProtocol, turns: SessionTurns | None = None) -> None:
        """`turns` is shared by the sessions that yield the event loop to each other."""
        self.turns = turns or SessionTurns()
        self._stream = stream
        self._protocol = protocol
        self._message = bytearray()
        """The content received so far of a fragmented message. Frames are not kept: any number of them may be empty."""
        self._events: deque[Frame] = deque()
        self._turn, self._control = SessionTurn(self.turns), ControlFrames()

    async def receive(self) -> bytes | None:
        """Return the next message, text as UTF-8 bytes; None when the client has closed, has gone or sends too much."""
        while True:
            while self._events:
                frame = self._events.popleft()
                await self._turn.count()
                if frame.opcode is Opcode.CLOSE:
                    return None
                if frame.opcode not in _MESSAGES:
                    if not self._control.allow(time.monotonic()):
                        await self._refuse()
                        return None
                    continue
                self._message += frame.data
                if frame.fin:
                    message = bytes(self._message)
                    self._message.clear()
                    return message
            if not await self._read():
                return None

    async def _refuse(self) -> None:
        with contextlib.suppress(InvalidState):
            self._protocol.send_close(POLICY_VIOLATION)
        await self._flush()

    async def _read(self) -> bool:
        """Read what the client sent next; False at its end."""
        data = await self._stream.reader.read(FRAME_CHUNK)
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        await self._flush()
        self._events.extend(event for event in self._protocol.events_received() if isinstance(event, Frame))
        return bool(self._events) or (bool(data) and self._protocol.state is not State.CLOSED)

    async def send(self, data: bytes, text: bool = False) -> None:
        """Send one message. Raise ConnectionError once the connection is closing."""
        try:
            if text:
                self._protocol.send_text(data)
            else:
                self._protocol.send_binary(data)
        except InvalidState as error:
            raise ConnectionResetError("the WebSocket is closed") from error
        await self._flush()

    async def close(self, code: int = NORMAL, reason: str = "") -> None:
        """Send a close frame and close the connection."""
        try:
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(code, reason)
                await self._flush()
        except (OSError, InvalidState):
            pass
        finally:
            await self._stream.close()

    async def _flush(self) -> None:
        if data := b"".join(self._protocol.data_to_send()):
            self._stream.writer.write(data)
        await self._stream.writer.drain()


def offered_subprotocols(headers: Iterable[tuple[str, str]]) -> list[str]:
    """List what the client offers, in its order of preference; header names in lower case."""
    found = []
    for name, value in headers:
        if name == "sec-websocket-protocol":
            found += [part.strip() for part in value.split(",") if part.strip()]
    return found


async def accept(
    stream: Stream,
    target: str,
    headers: Sequence[tuple[str, str]],
    subprotocol: str | None,
    turns: SessionTurns | None = None,
) -> WebSocket:
    """Answer the handshake of a request that was read elsewhere; target is its path and query. Raise HandshakeError."""
    protocol = ServerProtocol(max_size=_MAX_MESSAGE)
    # The package takes only RFC 2616 tokens for subprotocols, which kubectl's SPDY/3.1+portforward.k8s.io is not.
    passed = [(name, value) for name, value in headers if name != "sec-websocket-protocol"]
    lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in passed)]
    protocol.receive_data("\r\n".join([*lines, "", ""]).encode("latin-1"))
    request = next((event for event in protocol.events_received() if isinstance(event, Request)), None)
    if request is None:
        await stream.close()
        raise HandshakeError("not a WebSocket request")
    response = protocol.accept(request)
    if response.status_code == 101 and subprotocol:
        response.headers["Sec-WebSocket-Protocol"] = subprotocol
    protocol.send_response(response)
    for data in protocol.data_to_send():
        if data:
            stream.writer.write(data)
    await stream.writer.drain()
    if response.status_code != 101:
        await stream.close()
        raise HandshakeError(str(protocol.handshake_exc))
    return WebSocket(stream, protocol, turns)
