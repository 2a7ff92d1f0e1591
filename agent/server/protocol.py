"""The HTTP protocol of the kubelet's API, with two things that ASGI lacks.

The TLS client certificate is in `scope["extensions"]["tls"]["client_certificate"]` (DER, or None). A request that requests an
upgrade reaches the application as an ordinary request, with `scope["extensions"]["take_over"]`, which no other request has: a
function that takes the connection away from HTTP and returns its two raw halves. The application calls it once it has decided
to switch protocols, and from then on every byte is its own; until then it may answer as usual. The function raises
ConnectionResetError if the client has left. `scope["extensions"]["identified"]` records who makes requests on the connection,
`scope["extensions"]["allow_slow_reading"]` that the client may leave this answer unread for as long as it likes.
`scope["extensions"]["client"]` is the connection itself (kube.client_waits.Waiting).
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Callable, MutableMapping
from typing import Any, cast

from agent.streaming.idle import Activity, ActivityReader, ActivityWriter
from agent.streaming.upgrade import Stream
from kube.serving.protocol import BoundedProtocol

_BUFFER = 32 << 10
"""Half of the bytes of a session that are read ahead."""

TakeOver = Callable[[], Stream]


def allow_slow_reading(scope: MutableMapping[str, Any], namespace: str = "") -> None:
    """Let the client of a request read its answer as slowly as it likes: a person may be paging through a log.

    Where unread answers hold too much memory, one of the namespace with the most is closed first.
    """
    allow = scope.get("extensions", {}).get("allow_slow_reading")
    if allow is not None:
        allow(namespace)


class AgentProtocol(BoundedProtocol):
    """One connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Read the client's certificate once a connection."""
        super().connection_made(transport)
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        self._certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        if self._certificate is not None:
            self.identified(f"certificate {hashlib.sha256(self._certificate).hexdigest()}")

    def on_message_begin(self) -> None:
        """Add the extensions to the scope."""
        super().on_message_begin()
        extensions: dict[str, Any] = {
            "tls": {"client_certificate": self._certificate},
            "identified": self.identified,
            "allow_slow_reading": self._allow_slow_reading,
            "client": self,
        }
        self.scope["extensions"] = extensions

    def on_headers_complete(self) -> None:
        """Let a request that asks for another protocol take over the connection: it is the last one."""
        if self.parser.should_upgrade():
            cast(dict[str, Any], self.scope)["extensions"]["take_over"] = self._take_over
        super().on_headers_complete()

    def _allow_slow_reading(self, namespace: str) -> None:
        self.may_read_slowly, self.connection.work_of = True, namespace

    def _take_over(self) -> Stream:
        if self.transport.is_closing():
            raise ConnectionResetError("the client has closed the connection")  # the session's reader would never end
        activity = Activity()
        reader = ActivityReader(activity, limit=_BUFFER, loop=self.loop)
        protocol = _Session(reader, self._session_ended, self.loop)
        transport = self.transport
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        writer = ActivityWriter(activity, transport, protocol, reader, self.loop)
        if self.early:
            reader.feed_data(self.early)
            self.early = b""
        self.stop_timers()
        self.flow.resume_reading()
        # HTTP is over for this connection: nothing is to be answered, counted or closed by it.
        if self.upgrading is not None:
            self.upgrading.disconnected = self.upgrading.response_complete = True
        self.connections.discard(self)
        return Stream(reader, writer)

    def _session_ended(self) -> None:
        self.table.remove(self.connection)
        self.forget()


class _Session(asyncio.StreamReaderProtocol):
    """A connection that was taken over."""

    received = 0

    def __init__(
        self, reader: asyncio.StreamReader, ended: Callable[[], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(reader, loop=loop)
        self._ended = ended

    def data_received(self, data: bytes) -> None:
        self.received += 1
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()
        super().connection_lost(exc)
