"""Connections to backends, and idle ones for further requests.

A namespace has connections of its own, also to the same address: what a backend or the author of a Service does to a
connection has no effect on another namespace's requests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import NamedTuple

from netproxy.gateway.backend_connection import BackendConnection
from netproxy.gateway.errors import BackendError, BackendTimeout
from netproxy.gateway.limits import BackendLimits
from netproxy.gateway.places import Places

SWEEP = 1.0
"""Seconds between two searches for connections that have been idle for too long."""


class Endpoint(NamedTuple):
    """An address and port for which a namespace has connections."""

    namespace: str
    address: str
    port: int


class Pool:
    """All connections to backends."""

    def __init__(self, limits: BackendLimits) -> None:
        self.limits = limits
        self._loop = asyncio.get_running_loop()
        self._idle: dict[Endpoint, deque[BackendConnection]] = {}
        self._endpoints: dict[BackendConnection, Endpoint] = {}
        """Of idle connections."""
        self._idle_counts: dict[str, int] = {}
        self.places = Places(limits)

    def idle(self, endpoint: Endpoint, most: float) -> BackendConnection | None:
        """Return a connection that has been idle for at most so many seconds, the latest; `release` or `drop` it."""
        queue = self._idle.get(endpoint)
        if queue is None or self._loop.time() - queue[-1].idle_since > most:
            return None
        connection = queue[-1]
        self._forget(connection)
        return connection

    async def connect(self, endpoint: Endpoint) -> BackendConnection:
        """Return a new connection; BackendError if it cannot be made."""
        try:
            async with asyncio.timeout(self.limits.connect_timeout):
                _, connection = await self._loop.create_connection(
                    lambda: BackendConnection(self.limits, self._closed), endpoint.address, endpoint.port
                )
        except TimeoutError as error:
            raise BackendTimeout("the backend does not accept connections") from error
        except OSError as error:
            raise BackendError("the backend cannot be reached") from error
        return connection

    def release(self, endpoint: Endpoint, connection: BackendConnection) -> None:
        """Take a connection back, to use it again if it can be."""
        idle = self._idle_counts.get(endpoint.namespace, 0)
        full = idle >= self.limits.idle_each or len(self._endpoints) >= self.limits.idle
        if not connection.finish() or full:
            connection.fail(BackendError("closed"))
            return
        connection.idle_since = self._loop.time()
        self._idle.setdefault(endpoint, deque()).append(connection)
        self._endpoints[connection] = endpoint
        self._idle_counts[endpoint.namespace] = idle + 1

    def _closed(self, connection: BackendConnection) -> None:
        if connection in self._endpoints:
            self._forget(connection)

    def _forget(self, connection: BackendConnection) -> None:
        endpoint = self._endpoints.pop(connection)
        queue = self._idle[endpoint]
        if queue[-1] is connection:
            queue.pop()
        else:
            queue.remove(connection)
        if not queue:
            del self._idle[endpoint]
        left = self._idle_counts[endpoint.namespace] - 1
        if left:
            self._idle_counts[endpoint.namespace] = left
        else:
            del self._idle_counts[endpoint.namespace]

    def sweep(self) -> None:
        """Close connections that have been idle for too long."""
        oldest = self._loop.time() - self.limits.idle_timeout
        for queue in list(self._idle.values()):
            for connection in [each for each in queue if each.idle_since < oldest]:
                connection.fail(BackendError("idle"))
                self._closed(connection)

    async def run(self) -> None:
        """Sweep until cancelled, then close what is idle."""
        try:
            while True:
                await asyncio.sleep(SWEEP)
                self.sweep()
        finally:
            for connection in list(self._endpoints):
                with contextlib.suppress(KeyError):
                    self._forget(connection)
                connection.fail(BackendError("closed"))
