"""The server's end of a SPDY/3.1 connection, as a container runtime's streaming server has it.

The client opens streams, which are answered at once. What a stream received waits in a short queue: a stream that nobody reads
stops the whole connection, since SPDY as Kubernetes uses it has no flow control.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping

from agent.streaming import spdy
from agent.streaming.upgrade import Dial, Head, Stream, UpgradeError
from wherry.testing.kubelet.pairs import CHUNK, stream_of
from wherry.testing.kubelet.tasks import Tasks

QUEUED = 16
"""Frames that wait for the reader of a stream."""
CLOSE_SECONDS = 5.0
_PROTOCOL = "x-stream-protocol-version"


class ServerStream:
    """One stream of a connection."""

    def __init__(self, connection: ServerConnection, stream_id: int, headers: Mapping[str, str]) -> None:
        self.headers = headers
        self._connection, self._id = connection, stream_id
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUED)
        self._ended = False

    async def read(self) -> bytes:
        """Return the next bytes, b"" at the stream's end."""
        if self._ended:
            return b""
        data = await self._queue.get()
        self._ended = not data
        return data

    async def feed(self, data: bytes, *, fin: bool = False) -> None:
        """Add received bytes, once there is room."""
        if data:
            await self._queue.put(data)
        if fin:
            await self._queue.put(b"")

    async def write(self, data: bytes) -> None:
        """Send bytes. Raise BrokenPipeError when the connection has ended."""
        if data:
            await self._connection.send(self._id, data)

    async def end(self, data: bytes = b"") -> None:
        """Send the last bytes and the end of the stream."""
        with contextlib.suppress(OSError):
            await self._connection.send(self._id, data, fin=True)


class ServerConnection:
    """One connection; `opened` is called with each stream that the client opens."""

    def __init__(self, stream: Stream, opened: Callable[[ServerStream], None]) -> None:
        self._stream, self._opened = stream, opened
        self._spdy = spdy.Connection(client=False)
        self._streams: dict[int, ServerStream] = {}

    async def receive(self) -> None:
        """Receive until the client ends the connection."""
        with contextlib.suppress(OSError, spdy.SPDYError):
            while data := await self._stream.reader.read(CHUNK):
                for event in self._spdy.receive(data):
                    await self._handle(event)
                await self._flush()

    async def _handle(self, event: spdy.Event) -> None:
        if isinstance(event, spdy.StreamOpened):
            opened = self._streams[event.stream_id] = ServerStream(self, event.stream_id, event.headers)
            self._spdy.accept_stream(event.stream_id)
            await self._flush()
            self._opened(opened)
            await opened.feed(b"", fin=event.fin)
        elif isinstance(event, spdy.Data) and event.stream_id in self._streams:
            await self._streams[event.stream_id].feed(event.data, fin=event.fin)
        elif isinstance(event, spdy.Reset) and event.stream_id in self._streams:
            await self._streams.pop(event.stream_id).feed(b"", fin=True)

    async def send(self, stream_id: int, data: bytes, *, fin: bool = False) -> None:
        """Send a frame. Raise OSError when the connection has ended."""
        if self._stream.writer.is_closing():
            raise BrokenPipeError("the client has left")
        self._spdy.send(stream_id, data, fin=fin)
        await self._flush()

    async def _flush(self) -> None:
        if data := self._spdy.take():
            self._stream.writer.write(data)
            await self._stream.writer.drain()

    async def close(self) -> None:
        """Close the connection when the client has read everything, or after a few seconds.

        A socket that is closed with unread bytes would discard what the client has not read yet.
        """
        with contextlib.suppress(OSError, TimeoutError):
            self._stream.writer.write_eof()
            async with asyncio.timeout(CLOSE_SECONDS):
                while await self._stream.reader.read(CHUNK):
                    pass
        await self._stream.close()


def dial_to(serve: Callable[[Stream], Awaitable[None]], protocol: str, tasks: Tasks) -> Dial:
    """Return what connects a client with a function that serves the connection in a task."""

    async def dial(method: str, headers: Iterable[tuple[str, str]]) -> tuple[Stream, Head]:
        offered = [each.strip() for name, value in headers if name.lower() == _PROTOCOL for each in value.split(",")]
        if protocol not in offered:
            text = f"unable to upgrade: unable to negotiate protocol: client supports {offered}, server accepts [{protocol}]"
            raise UpgradeError(Head(403, "Forbidden", {}, b""), text.encode())
        one, other = socket.socketpair()
        ours, theirs = await stream_of(one), await stream_of(other)
        tasks.start(serve(theirs), "session with a simulated container")
        lines = ["HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", "Upgrade: SPDY/3.1"]
        lines += [f"X-Stream-Protocol-Version: {protocol}", "", ""]
        return ours, Head(101, "Switching Protocols", {}, "\r\n".join(lines).encode())

    return dial
