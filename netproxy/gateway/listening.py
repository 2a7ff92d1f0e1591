"""The sockets of a gateway: one for each port and address of the node, which stay while the routes behind them change.

Each namespace of Gateways has a table of connections of its own: its clients use up no other namespace's connections. Where the
process has too many in all, those of the namespace with most are closed.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kube.clock import SYSTEM
from kube.serving import protocol
from kube.serving.acceptor import Acceptor
from kube.serving.limits import ServingLimits
from kube.serving.table import Connection, ConnectionTable
from kube.serving.table_group import TableGroup, of_process
from kube.serving.uvicorn_modules import Config, ServerState
from netproxy.gateway.application import GatewayApplication
from netproxy.gateway.certificates import ServerNames
from netproxy.gateway.held_sockets import BACKLOG, HeldSockets
from netproxy.gateway.protocol import GatewayProtocol
from netproxy.gateway.routing import PortTable
from netproxy.socket_channel import Address

log = logging.getLogger(__name__)
SHARE = 4
"""Divisor of the process's connections: the share of the Gateways of one namespace."""
END_SECONDS = 2.0
"""Time for requests to end after their connections have been closed."""
CLOSE_SECONDS = 30.0
"""Time for the requests of a port that is no longer listened on."""


@dataclass(frozen=True, slots=True)
class Place:
    """An address and port of the node. A port with TLS is another one than the same without it."""

    address: str
    port: int
    tls: bool
    namespace: str


@dataclass(slots=True)
class Served:
    """Routes and TLS settings of a place."""

    routes: PortTable | None
    contexts: dict[str, ssl.SSLContext]


class _Listener:
    """A listening socket with its connections."""

    def __init__(
        self,
        place: Place,
        app: GatewayApplication,
        table: ConnectionTable,
        limits: ServingLimits,
        sockets: HeldSockets,
    ) -> None:
        """Listen on the address; OSError if that fails."""
        self._namespace, self._table, self._limits = place.namespace, table, limits
        self._served = Served(None, {})
        self._state = ServerState()
        self._config = Config(
            app, http=GatewayProtocol, ws="none", lifespan="off", interface="asgi3", access_log=False, log_config=None
        )
        self._config.loaded = True
        self._config.loaded_app = app
        self._config.http_protocol_class = GatewayProtocol
        self._config.ws_protocol_class = None
        self._config.encoded_headers = []
        self._names = ServerNames() if place.tls else None
        current = None if self._names is None else self._names.current
        listening = sockets.open(place.address, place.port)
        self._acceptor = Acceptor(listening, self._make, protocol.end, limits, table, current)
        self._acceptor.start(BACKLOG)

    def serve(self, served: Served) -> None:
        """Serve something else, to connections that there are too."""
        self._served = served
        if self._names is not None:
            self._names.set(served.contexts)

    def _routes(self) -> PortTable | None:
        return self._served.routes

    def _make(self, connection: Connection) -> asyncio.Protocol:
        made = GatewayProtocol(config=self._config, server_state=self._state, app_state={})
        made.admitted(connection, self._table, self._limits)
        made.routes, made.namespace = self._routes, self._namespace
        return made

    def close(self) -> None:
        """Stop listening; idle connections are closed, others after their response, or after a while at once."""
        self._acceptor.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        asyncio.get_running_loop().call_later(CLOSE_SECONDS, self.abort)

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """The requests that are being answered."""
        return self._state.tasks

    @property
    def busy(self) -> bool:
        """True if there are connections."""
        return bool(self._state.connections)

    def abort(self) -> None:
        """Close all connections at once."""
        for connection in list(self._state.connections):
            protocol.end(connection)


class Listening:
    """All listeners."""

    def __init__(
        self,
        app: GatewayApplication,
        limits: ServingLimits,
        group: TableGroup | None = None,
        sockets: HeldSockets | None = None,
    ) -> None:
        self._app, self._sockets = app, sockets or HeldSockets(None, SYSTEM)
        self._group = group or of_process(limits.most_connections)
        self._limits = replace(limits, connections=max(64, limits.most_connections // SHARE))
        self._listeners: dict[Place, _Listener] = {}
        self._tables: dict[str, ConnectionTable] = {}
        self._failed: dict[Place, str] = {}
        self._in_use: set[Address] = set()
        """Failed places that another program has."""

    def set(self, wanted: dict[Place, Served]) -> None:
        """Listen on these places and no others. A place that cannot be bound is retried the next time."""
        self._in_use.clear()
        for place in [place for place in self._listeners if place not in wanted]:
            self._listeners.pop(place).close()
        for place, served in wanted.items():
            listener = self._listeners.get(place) or self._open(place)
            if listener is not None:
                listener.serve(served)
        used = {place.namespace for place in self._listeners}
        self._tables = {name: table for name, table in self._tables.items() if name in used or len(table)}
        self._failed = {place: problem for place, problem in self._failed.items() if place in wanted}
        self._sockets.settle({(place.address, place.port) for place in self._listeners}, self._in_use)

    def _open(self, place: Place) -> _Listener | None:
        table = self._tables.setdefault(place.namespace, ConnectionTable(self._limits, self._group))
        try:
            made = _Listener(place, self._app, table, self._limits, self._sockets)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                self._in_use.add((place.address, place.port))
            problem = error.strerror or str(error)
            if self._failed.get(place) != problem:
                log.error("cannot listen on %s port %d: %s", place.address, place.port, problem)
            self._failed[place] = problem
            return None
        self._failed.pop(place, None)
        self._listeners[place] = made
        return made

    @property
    def failed(self) -> bool:
        """True if a place could not be bound."""
        return bool(self._failed)

    @property
    def unsettled(self) -> bool:
        """True if `set` is to be called again soon: a place could not be bound, or a socket may not be needed any more."""
        return self.failed or self._sockets.has_unused

    @property
    def places(self) -> Iterable[Place]:
        """The places that are listened on."""
        return self._listeners.keys()

    async def close(self, seconds: float = 0.0) -> None:
        """Stop listening, give requests so many seconds, then close all connections."""
        listeners = list(self._listeners.values())
        self._listeners.clear()
        for listener in listeners:
            listener.close()
        self._sockets.close()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(listener.busy for listener in listeners):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        for listener in listeners:
            listener.abort()
        if tasks := {task for listener in listeners for task in listener.tasks}:
            await asyncio.wait(tasks, timeout=END_SECONDS)
