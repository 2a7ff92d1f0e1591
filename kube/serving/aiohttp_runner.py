"""aiohttp's server on sockets that have limits: for health and metrics, whose answers are small and ready.

aiohttp limits the size of a head, but not its time. A connection is closed when it is as old as a head may be, after the answer
that is under way: clients of health and metrics send one request, or connect again. Their requests have no bodies: what comes
of one is neither decompressed (aiohttp would decompress all that one read brought in one step of the event loop, a thousand
times its size) nor read after the answer, and a connection that sends more than REQUEST_BYTES is closed.

An answer begins in a later iteration of the event loop than its request: with Python 3.12 and newer, aiohttp answers all
requests that one read brought, a thousand, in one iteration.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage

from kube.serving import watched
from kube.serving.acceptor import Acceptor
from kube.serving.bound import bound
from kube.serving.limits import ServingLimits
from kube.serving.table import Connection, ConnectionTable
from kube.serving.watched import Watched

log = logging.getLogger(__name__)


def _ours(record: logging.LogRecord) -> bool:
    """Return whether a record is about a fault of this process: what clients send wrongly would fill the log."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, BadHttpMessage | web.RequestPayloadError)


log.addFilter(_ours)

FEW = ServingLimits(unauthenticated=256, unauthenticated_per_peer=64)
"""Limits of a port whose clients need few connections."""
REQUEST_BYTES = 256 << 10
"""Bytes that a connection may send in its lifetime, with all its requests."""
SHUTDOWN_TIMEOUT = 1.0
"""Seconds that answers under way may take at the end; aiohttp waits as long again, and for ever with 0."""


Handler = Callable[[Any], Awaitable[web.StreamResponse]]


def _yielding(handler: Handler) -> Handler:
    async def handle(request: Any) -> web.StreamResponse:
        await asyncio.sleep(0)
        return await handler(request)

    return handle


class BoundedRunner(web.AppRunner):
    """An application on one address: `setup`, `listen`, and `cleanup` at the end."""

    def __init__(self, app: web.Application, limits: ServingLimits = FEW, table: ConnectionTable | None = None) -> None:
        """`table` holds the connections of several applications, of which all together may have so many."""
        super().__init__(
            app,
            access_log=None,
            handle_signals=False,
            logger=log,
            shutdown_timeout=SHUTDOWN_TIMEOUT,
            auto_decompress=False,
            lingering_time=0,
        )
        self._limits = limits
        self.table = ConnectionTable(limits) if table is None else table  # an empty table is false
        self._acceptor: Acceptor | None = None
        self.port = 0

    async def listen(self, host: str, port: int, tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        """Begin to serve; OSError where the address cannot be bound."""
        listening = bound(host, port)
        self.port = listening.getsockname()[1]
        self._acceptor = Acceptor(listening, self._make, watched.end, self._limits, self.table, tls)
        self._acceptor.start()

    def _make(self, connection: Connection) -> asyncio.Protocol:
        assert self.server is not None
        handler = self.server()
        return Watched(handler, connection, self.table, self._limits.head_timeout, handler.close, REQUEST_BYTES)

    async def _make_server(self) -> web.Server:
        """Make the server of aiohttp, whose requests, also those that no middleware gets, are handled in other iterations."""
        server: web.Server = await super()._make_server()
        server.request_handler = _yielding(server.request_handler)
        return server

    def abort(self) -> None:
        """Stop listening and close all connections at once; `cleanup` then has no client to wait for."""
        if self._acceptor is not None:
            self._acceptor.close()
        if self.server is not None:
            for handler in self.server.connections:
                if handler.transport is not None:
                    handler.transport.abort()

    async def cleanup(self) -> None:
        """Stop listening, and close each connection after the answer under way or `SHUTDOWN_TIMEOUT`."""
        if self._acceptor is not None:
            self._acceptor.close()
        await super().cleanup()
