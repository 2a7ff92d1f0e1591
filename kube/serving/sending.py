"""uvicorn's HTTP protocol with limits for clients that do not read: responses are sent in pieces, each with a timeout.

A whole answer that was handed to the transport at once would stay in memory for as long as its client likes, three times over
with TLS. So a piece is written when the client has read the last one. What a connection holds for a client that does not read
is counted in the connection table for as long as the transport pauses writing, whoever writes to it: pieces, uvicorn's own
`send`, or the owner of a connection that was taken over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from kube.serving.limits import ServingLimits
from kube.serving.table import Connection, ConnectionTable
from kube.serving.uvicorn_modules import HttpToolsProtocol, RequestResponseCycle

PIECE = 64 << 10
"""Bytes written at once; the transport buffers as much again before it pauses writing."""
BUFFERED = 4 * PIECE
"""Bytes that a transport and its TLS buffer when they pause writing: encrypted and plain, with copies."""
STALLED = 1.0
"""Seconds without reading after which a client counts as one that does not read."""
SMALL = 4 << 10
"""Bytes that are written whenever they come."""
Application = Callable[[Any, Any, Any], Awaitable[None]]


class _Gone:
    """Stands in for the transport of a connection that has ended: what is written is dropped."""

    def is_closing(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        pass

    abort = pause_reading = resume_reading = close


GONE = _Gone()


class SendingProtocol(HttpToolsProtocol):
    """One connection's sending half, and its end."""

    limits: ServingLimits
    table: ConnectionTable
    connection: Connection
    closing = False
    """Set once nothing more is to be read."""
    may_read_slowly = False
    """Set where a client may leave an answer unread for any time: a log that is followed, a spliced connection."""
    sending: asyncio.TimerHandle | None = None
    """Runs while the client does not read."""
    waiting_bytes = 0
    """Bytes that wait to be written, besides those that the transport has buffered."""
    _paused: asyncio.Handle | None = None
    """Counts what is held, once writing is paused, and once the client has not read for a while."""
    _stalled = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # uvloop's TLS would say only after half a megabyte that the client does not read.
        transport.set_write_buffer_limits(PIECE)

    def identified(self, user: str) -> None:
        """Record that the client is authenticated: floods of unauthenticated clients do not close its connection."""
        if not self.connection.user:
            self.table.identify(self.connection, user)

    def close(self) -> None:
        """Close the connection once the client has read what was written, or has had its time for that."""
        if self.sending is not None:
            self.sending.cancel()
        self.sending = self.loop.call_later(self.limits.send_timeout, self.abort)
        self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, in a while even if the client has not read its last answer."""
        self.close()

    def abort(self) -> None:
        """Close the connection at once; what was not sent is dropped."""
        self.closing = True
        if self.transport is not None:
            # A TLS transport of CPython 3.11 that has closed by itself has no protocol left to abort, and says so thus.
            with contextlib.suppress(AttributeError):
                self.transport.abort()

    def forget(self) -> None:
        """Release the transport and the request: TLS's buffers would stay until the garbage collector finds the circle."""
        self.transport = self.flow._transport = GONE  # type: ignore[assignment]
        for waiting, _ in self.pipeline:
            waiting.scope.clear()  # type: ignore[attr-defined]
        self.pipeline.clear()
        self.scope, self.headers, self.early = None, [], b""  # type: ignore[assignment]
        if self.cycle is not None:
            self.cycle.transport = GONE  # type: ignore[assignment]
            self.cycle = None  # type: ignore[assignment]

    def pause_writing(self) -> None:
        """Give the client `send_timeout` to read what was written."""
        super().pause_writing()
        if self.sending is None and not self.may_read_slowly:
            self.sending = self.loop.call_later(self.limits.send_timeout, self._unread)
        if self._paused is None:
            # Not here: the table may close this connection, whose transport is just writing.
            self._paused = self.loop.call_soon(self._count_paused)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.stop_counting()
        if self.sending is not None and not self.transport.is_closing():
            self.sending.cancel()
            self.sending = None

    def _unread(self) -> None:
        self.sending = None
        if not self.may_read_slowly:
            self.abort()

    async def drain(self, buffered: int) -> None:
        """Wait until the client has read what was written; `held` bytes are kept for it meanwhile."""
        self.waiting_bytes = buffered
        self._count()
        try:
            await self.flow.drain()
        finally:
            self.waiting_bytes = 0
            self._count()

    def _count_paused(self) -> None:
        self._paused = self.loop.call_later(STALLED, self._count_stalled)
        self._count()

    def _count_stalled(self) -> None:
        self._stalled = True
        self._count()

    def _count(self) -> None:
        """Count what is held while writing is paused."""
        if self._paused is None:
            return
        buffered = self.waiting_bytes + BUFFERED
        self.table.hold_answer(self.connection, buffered)
        if self._stalled:
            self.table.hold_stalled(self.connection, buffered)

    def stop_counting(self) -> None:
        """Count nothing any more: the client reads, or the connection is not HTTP's."""
        if self._paused is not None:
            self._paused.cancel()
        self._paused, self._stalled = None, False
        self.table.hold_answer(self.connection, 0)
        self.table.hold_stalled(self.connection, 0)

    async def write_pieces(self, data: bytes, begin: int = 0) -> None:
        """Write as much as the client reads, in pieces; returns early where the client has gone."""
        view = memoryview(data)
        for start in range(begin, len(view), PIECE):
            if self.flow.write_paused:
                await self.drain(len(view) - start)
            await self.table.writes.wait(self.connection.who)
            if self.transport.is_closing():
                return
            self.transport.write(view[start : start + PIECE])

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        super()._start_asgi_task(cycle, self.in_pieces(app))

    def in_pieces(self, app: Application) -> Application:
        """Return the application with the bodies that it sends cut into pieces, each sent when the client has read the last."""

        async def run(scope: Any, receive: Any, send: Any) -> None:
            async def cut(message: Any) -> None:
                body = message.get("body", b"") if message["type"] == "http.response.body" else b""
                last = 0
                if len(body) > PIECE:
                    last = (len(body) - 1) // PIECE * PIECE
                    for start in range(0, last, PIECE):
                        if self.flow.write_paused:
                            await self.drain(len(body) - start)
                        await self.table.writes.wait(self.connection.who)
                        piece = body[start : start + PIECE]
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                    message = {**message, "body": body[last:]}
                if self.flow.write_paused:
                    await self.drain(len(body) - last)
                await send(message)

            await app(scope, receive, cut)

        return run
