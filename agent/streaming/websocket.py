"""The server's side of a WebSocket over an upgraded connection (RFC 6455, by the websockets package, without its I/O).

The HTTP server hands over the raw connection after authentication and authorization, so the handshake is answered from the
request that it read (kube.serving.websocket). Pings are answered; extensions are not offered. What a client may send of tiny
frames is limited (kube.serving.frames): control frames to a rate, and sessions whose frames are waiting continue in their
order. Messages may have any length, as upstream: they are received in fragments, and large frames are split
(frame_splitter.py), so that no client makes the agent hold more than a fragment.
"""

import contextlib
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from agent.streaming.frame_splitter import FRAGMENT, FrameSplitter
from agent.streaming.upgrade import Stream
from kube.serving import websocket
from kube.serving.frames import FRAME_CHUNK, ControlFrames, FrameCounter, SessionYield
from kube.serving.websocket import NORMAL as NORMAL
from kube.serving.websocket import POLICY_VIOLATION

_MESSAGES = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)


class HandshakeError(Exception):
    """The client's request is no proper WebSocket handshake; it was answered and the connection closed."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a message, of FRAGMENT bytes at most; text is UTF-8 bytes. A message's `begins` and `ends` are True once."""

    data: bytes
    begins: bool = True
    ends: bool = True


class WebSocket:
    """A connection that carries messages."""

    def __init__(self, stream: Stream, protocol: ServerProtocol, session_yield: SessionYield | None = None) -> None:
        """`session_yield` is shared by the sessions that yield the event loop to each other."""
        self.session_yield = session_yield or SessionYield()
        self._stream = stream
        self._protocol = protocol
        self._splitter = FrameSplitter()
        self._events: deque[Frame] = deque()
        self._frames, self._control = FrameCounter(self.session_yield), ControlFrames()

    async def receive(self) -> Fragment | None:
        """Return the next part of a message; None when the client has closed, has gone or sends too much."""
        while True:
            while self._events:
                frame = self._events.popleft()
                await self._frames.count()
                if frame.opcode is Opcode.CLOSE:
                    return None
                if frame.opcode not in _MESSAGES:
                    if not self._control.allow(time.monotonic()):
                        await self._refuse()
                        return None
                    continue
                begins = frame.opcode is not Opcode.CONT
                if frame.data or begins or frame.fin:
                    return Fragment(bytes(frame.data), begins, frame.fin)
            if not await self._read():
                return None

    async def _refuse(self) -> None:
        with contextlib.suppress(InvalidState, OSError):
            self._protocol.send_close(POLICY_VIOLATION)
            await self._flush()

    async def _read(self) -> bool:
        """Read what the client sent next; False at its end, however it ends."""
        try:
            data = await self._stream.reader.read(FRAME_CHUNK)
            if data:
                self._protocol.receive_data(self._splitter.split(data))
            else:
                self._protocol.receive_eof()
            await self._flush()
        except OSError:
            return False
        self._events.extend(event for event in self._protocol.events_received() if isinstance(event, Frame))
        failed = self._protocol.parser_exc is not None or self._protocol.state is State.CLOSED
        return bool(self._events) or (bool(data) and not failed)

    async def send(self, data: bytes, *, text: bool = False) -> None:
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


async def accept(
    stream: Stream,
    target: str,
    headers: Sequence[tuple[str, str]],
    subprotocol: str | None,
    session_yield: SessionYield | None = None,
) -> WebSocket:
    """Answer the handshake of a request that was read elsewhere; target is its path and query. Raise HandshakeError."""
    protocol, response, failure = websocket.answer(headers, subprotocol or "", (None, FRAGMENT), target)
    if response:
        stream.writer.write(response)
        await stream.writer.drain()
    if failure:
        await stream.close()
        raise HandshakeError(failure)
    return WebSocket(stream, protocol, session_yield)
