"""The HTTP protocol of the API server: the client's certificate in the scope, and a way to hand over the raw connection.

The certificate (DER) is read once a connection. An Upgrade request is served like any other request; a handler that wants the
connection asks `takeover` for it, from when on bytes go to the new owner and uvicorn's machinery is out of it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from typing import Any

from control.http.pieces import Body, Pieces
from kube.serving.sending import PIECE, SMALL
from kube.serving.takeover import TakeoverProtocol
from kube.serving.uvicorn_modules import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

CERTIFICATE = "wherry.certificate"
PROTOCOL = "wherry.protocol"
CYCLE = "wherry.cycle"
_CLOSE = (b"connection", b"close")


class ApiProtocol(TakeoverProtocol):
    """One connection."""

    # What is large is sent by `respond_in_pieces` and `write_chunk`: nothing need be cut on its way.
    _start_asgi_task = HttpToolsProtocol._start_asgi_task

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        ssl_object = transport.get_extra_info("ssl_object")
        self.certificate: bytes | None = ssl_object.getpeercert(True) if ssl_object is not None else None
        if self.certificate is not None:
            # Its chain was checked in the handshake: this is nobody's flood, whoever it will turn out to be.
            self.identified(f"certificate {hashlib.sha256(self.certificate).hexdigest()}")

    def on_headers_complete(self) -> None:
        """Put into the scope what uvicorn does not know of; the application begins later."""
        super().on_headers_complete()
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope[CERTIFICATE], scope[PROTOCOL] = self.certificate, self
        # Of pipelined requests each answers its own cycle, while `self.cycle` is the newest one.
        scope[CYCLE] = self.cycle

    def respond(
        self, cycle: RequestResponseCycle, status: int, headers: Iterable[tuple[bytes, bytes]], body: Body
    ) -> bool:
        """Write a whole answer to a request at once, head and body in one TLS record where they fit.

        Returns False if the transport is full, the answer is large or has begun: `respond_in_pieces` waits. Raises
        RuntimeError, as uvicorn, for a header with CR, LF or NUL, whatever it comes from.
        """
        if cycle.response_started or cycle.disconnected or self.flow.write_paused or len(body) > PIECE:
            return False
        if isinstance(body, Pieces):
            body = body.whole()
        self._write_answer(cycle, status, headers, body)
        self._answered(cycle)
        return True

    async def respond_in_pieces(
        self, cycle: RequestResponseCycle, status: int, headers: Iterable[tuple[bytes, bytes]], body: Body
    ) -> None:
        """Write a whole answer as fast as the client reads it."""
        if self.flow.write_paused:  # by answers before this one, or by one of nothing but heads
            await self.drain(len(body))
        first = memoryview(b"") if isinstance(body, Pieces) else memoryview(body)[:PIECE]
        if first:
            # The head goes with it: by itself it would be one more TLS record, and one more write to the socket.
            await self.table.writes.wait(self.connection.who)
        if cycle.response_started or cycle.disconnected:
            return
        self._write_answer(cycle, status, headers, first)
        if cycle.scope["method"] != "HEAD":
            await (self._write_parts(body) if isinstance(body, Pieces) else self.write_pieces(body, len(first)))
        if not cycle.disconnected:
            self._answered(cycle)

    async def _write_parts(self, body: Pieces) -> None:
        """Write as much of a large list as the client reads; all that is left of it is held for this client."""
        left = len(body)
        for part in body.parts():
            for start in range(0, len(part), PIECE):
                if self.flow.write_paused:
                    await self.drain(left)
                await self.table.writes.wait(self.connection.who)
                if self.transport.is_closing():
                    return
                piece = memoryview(part)[start : start + PIECE]
                left -= len(piece)
                self.transport.write(piece)

    def _write_answer(
        self,
        cycle: RequestResponseCycle,
        status: int,
        headers: Iterable[tuple[bytes, bytes]],
        body: bytes | memoryview,
    ) -> None:
        pairs = (*cycle.default_headers, *headers)
        if _CLOSE in pairs:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            pairs = (*pairs, _CLOSE)
        parts, lines = [STATUS_LINE[status]], len(pairs) + 2
        for name, value in pairs:
            parts += (name, b": ", value, b"\r\n")
        parts.append(b"\r\n")
        head = b"".join(parts)
        if head.count(b"\n") != lines or head.count(b"\r") != lines or b"\0" in head:
            raise RuntimeError("invalid HTTP header: CR, LF or NUL")
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        self.transport.write(head + body if body and cycle.scope["method"] != "HEAD" else head)

    def _answered(self, cycle: RequestResponseCycle) -> None:
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.close()
        cycle.on_response()

    async def write_chunk(self, cycle: RequestResponseCycle, chunk: bytes) -> None:
        """Write a chunk of an answer whose head has been sent through ASGI; waits while the client does not read."""
        if self.flow.write_paused:
            await self.drain(len(chunk))
        if SMALL < len(chunk) <= PIECE:
            await self.table.writes.wait(self.connection.who)
        if cycle.disconnected:
            return
        if len(chunk) <= PIECE:
            self.transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        else:
            self.transport.write(b"%x\r\n" % len(chunk))
            await self.write_pieces(chunk)
            if not cycle.disconnected:
                self.transport.write(b"\r\n")
