"""uvicorn's HTTP protocol with the two things the kubelet's API needs and ASGI lacks.

The TLS client certificate is in `scope["extensions"]["tls"]["client_certificate"]` (DER, or None). A request that
asks for an upgrade comes to the application as an ordinary request, with `scope["extensions"]["take_over"]`: a function
that takes the connection away from HTTP and returns its two raw halves. The application calls it once it has
decided to switch protocols, and from then on every byte is its own; until then it may answer as usual.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from agent.streaming.idle import Activity, NotingReader, NotingWriter
from agent.streaming.upgrade import Stream

_BUFFER = 64 << 10
_MAX_HEAD = 1 << 20  # of a request's line and headers together, as Go's http.Server has it

TakeOver = Callable[[], Stream]


class AgentProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._certificate: bytes | None = None
        self._upgrading = False
        self._after_upgrade = b""
        self._head_size = 0
        self._in_head = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read the client's certificate once a connection."""
        super().connection_made(cast(asyncio.Transport, transport))
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if tls is not None:
            self._certificate = tls.getpeercert(binary_form=True)

    def on_message_begin(self) -> None:
        """Add the extensions to the scope."""
        super().on_message_begin()
        self._in_head, self._head_size = True, 0
        extensions: dict[str, Any] = {"tls": {"client_certificate": self._certificate}, "take_over": self._take_over}
        self.scope["extensions"] = extensions

    def on_headers_complete(self) -> None:
        """Let nothing follow a request that asked for an upgrade, whatever the answer."""
        super().on_headers_complete()
        self._in_head = False
        if self.parser.should_upgrade():
            self.cycle.keep_alive = False

    def _should_upgrade(self) -> bool:
        return False  # WebSocket requests too go to the application, which authorises them first

    def data_received(self, data: bytes) -> None:
        """Parse, and keep what comes after an upgrade request for who takes the connection over."""
        if self._upgrading:
            self._after_upgrade += data
            if len(self._after_upgrade) > _BUFFER:
                self.flow.pause_reading()
            return
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
            self._head_size = self._head_size + len(data) if self._in_head else 0
            if self._head_size > _MAX_HEAD:
                # Nobody has been identified yet: whoever can connect could fill the memory.
                self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n\r\n")
                self.transport.close()
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrading = True
            self._after_upgrade = data[upgrade.args[0] :]
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _take_over(self) -> Stream:
        activity = Activity()
        reader = NotingReader(activity, limit=_BUFFER, loop=self.loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self.loop)
        transport = self.transport
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        writer = NotingWriter(transport, protocol, reader, self.loop)
        writer.activity = activity
        if self._after_upgrade:
            reader.feed_data(self._after_upgrade)
        self.flow.resume_reading()
        # HTTP is over for this connection: nothing is to be answered, counted or closed by it.
        self.cycle.disconnected = True
        self.cycle.response_complete = True
        self.connections.discard(self)
        return Stream(reader, writer)
