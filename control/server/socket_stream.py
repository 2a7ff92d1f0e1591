"""An answer that comes in pieces as the messages of a WebSocket, for clients that request a pod's log that way.

Each piece is one message: bytes under `binary.k8s.io` and without a subprotocol, base64 text under `base64.binary.k8s.io`.
What the client says is read for its pings and its goodbye alone. Upstream: apimachinery, httpstream/wsstream/stream.go.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib

import msgspec
from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request as Handshake
from websockets.server import ServerProtocol

from control.http.exchange import Request, Response, Stream, Upgrade
from control.http.protocol import ApiProtocol
from kube.serving.frames import FRAME_CHUNK, ControlFrames, FrameCounter, SessionYield

_BINARY, _TEXT = "binary.k8s.io", "base64.binary.k8s.io"
_NORMAL, _POLICY_VIOLATION = 1000, 1008
_MOST_FROM_CLIENT = 64 << 10
"""Bytes of a client's message, of which none is used: an unfinished frame is held whole."""
_GOODBYE = 1.0
"""Seconds that a client has to answer the close."""


class AcceptedHandshake(msgspec.Struct):
    """The handshake of a WebSocket: the bytes of the response, and the subprotocol that was agreed on."""

    socket: ServerProtocol
    response: bytes
    subprotocol: str


def accept_handshake(request: Request) -> AcceptedHandshake | Response:
    """Accept the handshake of a WebSocket request, or return a 400. To be called before anything is opened for the request."""
    given = request.headers.get(b"sec-websocket-protocol", b"").decode("latin-1")
    offered = [name.strip() for name in given.split(",") if name.strip()]
    chosen = next((name for name in offered if name in (_BINARY, _TEXT)), "")
    socket, response = _respond(request, chosen)
    if response is None or (offered and not chosen):
        refusal = b"the WebSocket's handshake cannot be answered\n"
        # The client may have begun to send frames: nothing after this can be a request.
        return Response(400, refusal, b"text/plain; charset=utf-8", [(b"connection", b"close")])
    return AcceptedHandshake(socket, response, chosen)


def over_socket(handshake: AcceptedHandshake, stream: Stream, session_yield: SessionYield) -> Upgrade:
    """Give a stream's chunks to the client of a WebSocket, and close it at their end.

    `session_yield` is what sessions share that leave the event loop to each other.
    """
    socket = handshake.socket

    async def splice(protocol: ApiProtocol) -> Response | None:
        ended = asyncio.Event()
        heard = _Heard(socket, protocol, ended, session_yield)
        transport = protocol.takeover(heard.add, ended.set)
        transport.write(handshake.response)

        async def send() -> None:
            async for chunk in stream.chunks:
                if handshake.subprotocol == _TEXT:
                    socket.send_text(base64.b64encode(chunk))
                else:
                    socket.send_binary(chunk)
                _flush(socket, transport)
                await protocol.flow.drain()
            socket.send_close(_NORMAL)
            _flush(socket, transport)
            await protocol.flow.drain()

        tasks = [
            asyncio.create_task(send(), name="socket-stream"),
            asyncio.create_task(ended.wait(), name="socket-client-gone"),
            asyncio.create_task(heard.read(), name="socket-from-client"),
        ]
        try:
            await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE):  # a close is answered before the connection ends
                    await ended.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            transport.close()
        return None

    return Upgrade(splice, stream)


class _Heard:
    """Frames from a client: read a little at a time, pings are answered, and too many bytes are rejected."""

    def __init__(
        self, socket: ServerProtocol, protocol: ApiProtocol, ended: asyncio.Event, session_yield: SessionYield
    ) -> None:
        self._socket, self._protocol, self._ended = socket, protocol, ended
        self._data, self._more = bytearray(), asyncio.Event()
        self._frames, self._control = FrameCounter(session_yield), ControlFrames()

    def add(self, data: bytes) -> None:
        """Take what came; the connection is read on when that has been looked at."""
        self._data += data
        self._protocol.transport.pause_reading()
        self._more.set()

    async def read(self) -> None:
        """Read until the client closes or sends too much; sets `ended` then."""
        while not self._ended.is_set():
            await self._more.wait()
            self._more.clear()
            while self._data and not self._ended.is_set():
                piece = bytes(self._data[:FRAME_CHUNK])
                del self._data[:FRAME_CHUNK]
                await self._take(piece)
            with contextlib.suppress(RuntimeError):  # it is closed
                self._protocol.transport.resume_reading()

    async def _take(self, piece: bytes) -> None:
        self._socket.receive_data(piece)
        frames = [event for event in self._socket.events_received() if isinstance(event, Frame)]
        now = asyncio.get_running_loop().time()
        control = [self._control.allow(now) for frame in frames if frame.opcode in (Opcode.PING, Opcode.PONG)]
        if not all(control):
            with contextlib.suppress(InvalidState):
                self._socket.send_close(_POLICY_VIOLATION)
        _flush(self._socket, self._protocol.transport)
        await self._protocol.flow.drain()
        if not all(control) or any(frame.opcode is Opcode.CLOSE for frame in frames):
            self._ended.set()
        await self._frames.count(len(frames))


def _respond(request: Request, chosen: str) -> tuple[ServerProtocol, bytes | None]:
    """Return the socket and the response to its handshake; None if it cannot be accepted."""
    socket = ServerProtocol(max_size=_MOST_FROM_CLIENT)
    lines = ["GET / HTTP/1.1"]
    for name, value in request.headers.items():
        if name != b"sec-websocket-protocol":
            lines.append(f"{name.decode('latin-1')}: {value.decode('latin-1')}")
    socket.receive_data("\r\n".join([*lines, "", ""]).encode("latin-1"))
    asked = next((event for event in socket.events_received() if isinstance(event, Handshake)), None)
    if asked is None:
        return socket, None
    answer = socket.accept(asked)
    if answer.status_code != 101:
        return socket, None
    if chosen:
        answer.headers["Sec-WebSocket-Protocol"] = chosen
    socket.send_response(answer)
    return socket, b"".join(socket.data_to_send())


def _flush(socket: ServerProtocol, transport: asyncio.Transport) -> None:
    try:
        if data := b"".join(socket.data_to_send()):
            transport.write(data)
    except InvalidState:
        transport.close()
