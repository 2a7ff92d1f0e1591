"""The client's side of a connection: requests in the scope as they came, and a hook for a client that reads again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kube.serving.protocol import REFUSED
from kube.serving.takeover import TakeoverProtocol
from kube.serving.uvicorn_modules import HttpToolsProtocol
from netproxy.gateway.routing import PortTable

PROTOCOL, CYCLE, TARGET = "wherry.protocol", "wherry.cycle", "wherry.target"
SERVER_NAME = "wherry_server_name"
"""Attribute of a TLS object: the server name of its handshake."""


class GatewayProtocol(TakeoverProtocol):
    """One connection. `routes` returns the current routes of its port, `namespace` is that of the Gateway."""

    # Responses are written by ClientResponse: nothing need be cut on its way.
    _start_asgi_task = HttpToolsProtocol._start_asgi_task
    routes: Callable[[], PortTable | None]
    namespace: str
    server_name: str | None = None
    """The server name of the TLS handshake, "" if the client sent none; None without TLS."""
    on_writable: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        ssl_object = transport.get_extra_info("ssl_object")
        if ssl_object is not None:
            self.server_name = getattr(ssl_object, SERVER_NAME, "")

    def on_headers_complete(self) -> None:
        """Put into the scope what uvicorn does not know of; it parses no target, because routes need another form."""
        target, self.url = self.url, b"/"
        super().on_headers_complete()
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope[PROTOCOL], scope[CYCLE], scope[TARGET] = self, self.cycle, target

    def close_later(self) -> None:
        """Close the connection in a moment, and drop what comes meanwhile.

        Closing with unread bytes would reset it before the client has read the response.
        """
        self.closing = True
        self.stop_timers()
        self.flow.resume_reading()
        self.loop.call_later(REFUSED, self.close)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.on_writable is not None:
            self.on_writable()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.on_writable = None
