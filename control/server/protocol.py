"""uvicorn's HTTP protocol with what it lacks: the client's certificate in the scope, and a way to hand over the raw connection.

The certificate (DER) is read once a connection. An Upgrade request is served like any other request; a handler that wants the
connection asks `takeover` for it, from when on bytes go to the new owner and uvicorn's machinery is out of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

CERTIFICATE = "wherry.certificate"
PROTOCOL = "wherry.protocol"
CYCLE = "wherry.cycle"


class ApiProtocol(HttpToolsProtocol):
    """One connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        ssl_object = transport.get_extra_info("ssl_object")
        self.certificate: bytes | None = ssl_object.getpeercert(True) if ssl_object is not None else None
        self.successor: Callable[[bytes], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        self._early = b""
        # A connection on which nothing is ever asked ends like one that has fallen silent.
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def on_message_begin(self) -> None:
        """Put into the scope what uvicorn does not know of."""
        super().on_message_begin()
        scope = cast(dict[str, Any], self.scope)
        scope[CERTIFICATE] = self.certificate
        scope[PROTOCOL] = self

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        # Of pipelined requests each answers its own cycle, while `self.cycle` is the newest one.
        cast(dict[str, Any], self.scope)[CYCLE] = self.cycle

    def data_received(self, data: bytes) -> None:
        """Feed the parser, or whoever took the connection over."""
        if self.successor is not None:
            self.successor(data)
            return
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # What follows the request's head belongs to the protocol that it asks for.
            self._early += data[upgrade.args[0] :]
            # Nothing on this connection can be a request again, whether the upgrade comes about or not.
            if self.cycle is not None:
                self.cycle.keep_alive = False
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def respond(
        self, cycle: RequestResponseCycle, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes
    ) -> bool:
        """Write a whole answer to a request at once, head and body in one TLS record where they fit.

        Returns False where the transport is full or the answer has begun: then ASGI's way has to be taken. Header values
        come from this server or from a parsed request, so none can hold a line break.
        """
        if cycle.response_started or cycle.disconnected or self.flow.write_paused:
            return False
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        parts = [STATUS_LINE[status]]
        for name, value in (*cycle.default_headers, *headers):
            parts += (name, b": ", value, b"\r\n")
            if name == b"connection" and value == b"close":
                cycle.keep_alive = False
        if not cycle.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        if cycle.scope["method"] != "HEAD":
            parts.append(body)
        self.transport.write(b"".join(parts))
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

    async def write_chunk(self, cycle: RequestResponseCycle, chunk: bytes) -> None:
        """Write a chunk of an answer whose head has been sent through ASGI; waits while the client does not read."""
        if self.flow.write_paused:
            await self.flow.drain()
        if not cycle.disconnected:
            self.transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))

    def takeover(self, on_data: Callable[[bytes], None], on_lost: Callable[[], None]) -> asyncio.Transport:
        """Give the connection to `on_data`; `on_lost` is called once when it ends. Returns the transport to write to."""
        self.successor, self.on_lost = on_data, on_lost
        self._unset_keepalive_if_required()
        cycle = self.cycle
        cycle.response_started = cycle.response_complete = True
        early, self._early = self._early, b""
        if early:
            on_data(early)
        return self.transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever took the connection over, too."""
        if self.on_lost is not None:
            self.on_lost()
        super().connection_lost(exc)

    def _should_upgrade(self) -> bool:
        return False

    def shutdown(self) -> None:
        if self.successor is not None:
            self.transport.close()
        else:
            super().shutdown()
