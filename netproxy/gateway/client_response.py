"""A response to a client: its head, framed for the client's connection, and its body as fast as the client reads it."""

from __future__ import annotations

import time
from email.utils import formatdate

from kube.serving.fair_queue import FairQueue
from kube.serving.sending import PIECE
from kube.serving.uvicorn_modules import STATUS_LINE, RequestResponseCycle
from netproxy.gateway.errors import ClientGone
from netproxy.gateway.header_changes import Header
from netproxy.gateway.protocol import GatewayProtocol

SERVER = b"wherry"
_WITHOUT_BODY = (204, 304)
_NOT_UNDERSTOOD = (400, 405, 501, 505)
"""Nothing that follows such a request is read: another server before this one may see its end elsewhere."""


class ClientResponse:
    """The response to one request. `pieces` lets namespaces write round robin."""

    __slots__ = ("_chunked", "_cycle", "_head_only", "_pieces", "_protocol", "_version", "owner", "started")

    def __init__(self, protocol: GatewayProtocol, cycle: RequestResponseCycle, pieces: FairQueue) -> None:
        self._protocol, self._cycle, self._pieces = protocol, cycle, pieces
        self._head_only = cycle.scope["method"] == "HEAD"
        self._version = cycle.scope["http_version"]
        self._chunked = False
        self.started = False
        self.owner = ""
        """Namespace of the route."""

    @property
    def gone(self) -> bool:
        """True if the client has closed the connection."""
        return bool(self._protocol.transport.is_closing())

    async def start(
        self, status: int, headers: list[Header], length: int | None, body: bytes, *, complete: bool
    ) -> None:
        """Send a head with the first part of the body, which may be all of it (`complete`); length None: it is not known."""
        cycle = self._cycle
        has_body = not self._head_only and status not in _WITHOUT_BODY
        parts = [STATUS_LINE.get(status) or b"HTTP/1.1 %d \r\n" % status]
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
        if has_body:
            if length is None and complete:
                length = len(body)
            if length is not None:
                parts.append(b"content-length: %d\r\n" % length)
            elif self._version == "1.1":
                self._chunked = True
                parts.append(b"transfer-encoding: chunked\r\n")
            else:
                cycle.keep_alive = False  # the end of the connection is that of the body
        if cycle.more_body:
            cycle.keep_alive = False  # what is not read of the request cannot be distinguished from the next one
        if not cycle.keep_alive:
            parts.append(b"connection: close\r\n")
        elif self._version == "1.0":
            parts.append(b"connection: keep-alive\r\n")
        parts.append(b"\r\n")
        self.started = True
        cycle.response_started, cycle.waiting_for_100_continue = True, False
        if has_body and body:
            parts += (b"%x\r\n" % len(body), body, b"\r\n") if self._chunked else (body,)
        await self._write(b"".join(parts))
        if complete:
            await self.end()

    async def write(self, data: bytes) -> None:
        """Send a part of the body, when the client has read those before."""
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE] if len(data) > PIECE else data
            await self._write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)

    async def _write(self, data: bytes) -> None:
        protocol = self._protocol
        if protocol.flow.write_paused:
            await protocol.drain(len(data))
        if len(data) > 4096:
            await self._pieces.wait(self.owner)
        if protocol.transport.is_closing():
            raise ClientGone
        protocol.transport.write(data)

    async def end(self) -> None:
        """Finish the response; the connection is then ready for the next request, or closed."""
        cycle = self._cycle
        if self._chunked:
            await self._write(b"0\r\n\r\n")
        cycle.response_complete = True
        cycle.message_event.set()
        if cycle.more_body:
            self._protocol.close_later()
        elif not cycle.keep_alive:
            self._protocol.close()
        cycle.on_response()

    async def answer(self, status: int, text: str, headers: tuple[Header, ...] = ()) -> None:
        """Send a response of the gateway's own; the connection is closed if the request was not understood."""
        if status in _NOT_UNDERSTOOD:
            self._cycle.keep_alive = False
        body = b"" if status in _WITHOUT_BODY else f"{text}\n".encode("latin-1", "replace")
        own = with_own_headers([(b"content-type", b"text/plain; charset=utf-8"), *headers])
        if self._head_only:
            own.append((b"content-length", b"%d" % len(body)))
        await self.start(status, own, len(body), body, complete=True)

    def abort(self) -> None:
        """Close the connection at once, so that the client does not take what it has for the whole response."""
        self._cycle.response_started = self._cycle.response_complete = True
        self._protocol.abort()


def with_own_headers(headers: list[Header]) -> list[Header]:
    """Return the headers of a response with those that a gateway adds if a backend does not (RFC 9110, 6.6.1): Date, Server."""
    names = {name for name, _ in headers}
    if b"date" not in names:
        headers.append((b"date", _date()))
    if b"server" not in names:
        headers.append((b"server", SERVER))
    return headers


_dates: dict[int, bytes] = {}


def _date() -> bytes:
    now = int(time.time())
    if now not in _dates:
        _dates.clear()
        _dates[now] = formatdate(now, usegmt=True).encode()
    return _dates[now]
