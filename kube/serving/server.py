"""uvicorn's server on sockets that have limits (kube.serving.acceptor)."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

from kube.serving import protocol
from kube.serving.acceptor import Acceptor
from kube.serving.limits import ServingLimits
from kube.serving.protocol import BoundedProtocol
from kube.serving.table import Connection, ConnectionTable
from kube.serving.uvicorn_modules import Config, LifespanOff, Server

log = logging.getLogger(__name__)


class BoundedServer(Server):
    """Serves a configuration whose protocol is a `BoundedProtocol`, on sockets that are given to `startup`."""

    admits: Callable[[socket.socket], bool] | None = None
    """Returns whether a connection that was accepted is served."""

    def __init__(self, config: Config, limits: ServingLimits, tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        super().__init__(config)
        self.limits, self._tls = limits, tls
        self.table = ConnectionTable(limits)
        self.lifespan = LifespanOff(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections on these sockets, which are bound."""
        self.servers: list[Any] = []
        for listening in sockets or ():
            acceptor = Acceptor(listening, self._make, protocol.end, self.limits, self.table, self._tls, self.admits)
            acceptor.start(self.config.backlog)
            self.servers.append(acceptor)
        self.started = True

    async def serve_connected(self, connected: socket.socket, user: str) -> None:
        """Serve a connection that was established elsewhere, for a known user. Raise OSError if there are too many."""
        made: list[asyncio.Protocol] = []
        connection = self.table.add("", lambda: protocol.end(made[0]))
        if connection is None:
            connected.close()
            raise OSError(errno.EMFILE, "too many connections")
        self.table.identify(connection, user)
        made.append(self._make(connection))
        connected.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: made[0], connected)

    def _make(self, connection: Connection) -> asyncio.Protocol:
        made: BoundedProtocol = self.config.http_protocol_class(  # type: ignore[call-arg, assignment]
            config=self.config, server_state=self.server_state, app_state={}
        )
        made.admitted(connection, self.table, self.limits)
        return made
