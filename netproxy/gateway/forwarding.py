"""Forwards a request to an endpoint of a backend and its response to the client.

A request is sent once, unless nothing of a response has come over a connection that had been idle and the request may be
repeated: the backend has closed the connection in the same moment then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kube.serving.uvicorn_modules import RequestResponseCycle
from netproxy.gateway.backend_connection import BackendConnection
from netproxy.gateway.backends import Backends, PortEndpoints
from netproxy.gateway.client_response import ClientResponse, with_own_headers
from netproxy.gateway.errors import BackendError, BackendTimeout, ClientGone
from netproxy.gateway.header_changes import Header
from netproxy.gateway.pool import Endpoint, Pool
from netproxy.gateway.protocol import GatewayProtocol
from netproxy.gateway.request_headers import request_head
from netproxy.gateway.response import ResponseHead
from netproxy.gateway.rule import CompiledBackend, CompiledRule
from netproxy.gateway.splice import splice

_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})


@dataclass(slots=True)
class Forwarded:
    """A request on its way: what the client sent, and what the backend is to get."""

    protocol: GatewayProtocol
    cycle: RequestResponseCycle
    receive: Callable[[], Awaitable[Any]]
    response: ClientResponse
    rule: CompiledRule
    backend: CompiledBackend
    method: str
    target: str
    host: str
    headers: list[Header]
    length: int | None
    upgrade: bool
    streaming: bool
    """True if a part of the body has not come yet."""
    timeout: asyncio.Timeout | None = None

    @property
    def repeatable(self) -> bool:
        """True if it may be sent twice."""
        return self.method in _IDEMPOTENT and not self.streaming and not self.upgrade


class Forwarder:
    """Forwards requests over the connections of a pool."""

    def __init__(self, pool: Pool, backends: Backends) -> None:
        self._pool, self._backends = pool, backends

    async def forward(self, request: Forwarded) -> None:
        """Forward a request and its response; raises Refused, BackendError and ClientGone."""
        rule = request.rule
        if rule.request_seconds is None and rule.backend_seconds is None:
            await self._forward(request)
            return
        seconds = min(each for each in (rule.request_seconds, rule.backend_seconds) if each is not None)
        try:
            async with asyncio.timeout(seconds) as request.timeout:
                await self._forward(request)
        except TimeoutError as error:
            raise BackendTimeout("the backend does not respond in time") from error

    async def _forward(self, request: Forwarded) -> None:
        body = b"" if request.streaming else bytes(request.cycle.body)
        data = request_head(
            request.method,
            request.target,
            request.host,
            request.headers,
            length=request.length if request.streaming else len(body),
            upgrade=request.upgrade,
        )
        backend, limits = request.backend, self._pool.limits
        endpoints = await self._backends.find(backend.namespace, backend.service, backend.port)
        found = endpoints.pick(set())
        protocol = request.protocol
        with self._pool.places.hold(backend.namespace, protocol.connection.peer, protocol.abort):
            if not request.streaming and found is not None:
                endpoint = Endpoint(backend.namespace, *found)
                connection = self._pool.idle(endpoint, limits.idle_timeout if request.repeatable else limits.fresh)
                if connection is not None and await self._exchange(request, endpoint, connection, data + body):
                    return
            endpoint, connection = await self._connect(request, endpoints, found)
            await self._exchange(request, endpoint, connection, data + body)

    async def _connect(
        self, request: Forwarded, endpoints: PortEndpoints, found: tuple[str, int] | None
    ) -> tuple[Endpoint, BackendConnection]:
        """Return a new connection to an endpoint that accepts one; `found` is the first to try."""
        limits = self._pool.limits
        tried: set[tuple[str, int]] = set()
        error = BackendError("the backend cannot be reached")
        while found is not None:
            if request.response.gone:
                raise ClientGone
            tried.add(found)
            endpoint = Endpoint(request.backend.namespace, *found)
            try:
                return endpoint, await self._pool.connect(endpoint)
            except BackendError as failed:
                error = failed
                endpoints.avoid(found, limits.avoided)
            found = endpoints.pick(tried) if len(tried) < limits.attempts else None
        raise error

    async def _exchange(
        self, request: Forwarded, endpoint: Endpoint, connection: BackendConnection, data: bytes
    ) -> bool:
        """Send a request and its response; return False if it can be sent again over another connection."""
        protocol = request.protocol
        try:
            if request.response.gone:
                raise ClientGone
            protocol.on_lost = lambda: connection.fail(BackendError("the client has closed the connection"))
            repeated = connection.used
            connection.begin(
                data, head_only=request.method == "HEAD", upgrade=request.upgrade, body_follows=request.streaming
            )
            if request.streaming:
                await _with_body(request, connection)
                return True
            connection.expect_head()
            try:
                head = await connection.read_head()
            except BackendTimeout:
                raise
            except BackendError:
                if repeated and request.repeatable and not connection.received and not request.response.gone:
                    return False
                raise
            await _respond(request, connection, head)
            return True
        finally:
            protocol.on_lost = None
            self._pool.release(endpoint, connection)


async def _with_body(request: Forwarded, connection: BackendConnection) -> None:
    """Send the body of a request as it arrives, and the response, which may come before all of the body has."""
    sending = asyncio.create_task(_send_body(request, connection), name="request body")
    try:
        await _respond(request, connection, await connection.read_head())
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _send_body(request: Forwarded, connection: BackendConnection) -> None:
    """Send the body as it arrives, and then limit the time until the response."""
    with contextlib.suppress(BackendError):
        while True:
            message = await request.receive()
            if message["type"] != "http.request":
                return
            part = message["body"]
            if part:
                await connection.write(part if request.length is not None else b"%x\r\n%b\r\n" % (len(part), part))
            if not message["more_body"]:
                break
        if request.length is None:
            await connection.write(b"0\r\n\r\n")
        connection.request_sent = True
        connection.expect_head()


async def _respond(request: Forwarded, connection: BackendConnection, head: ResponseHead) -> None:
    headers = with_own_headers(head.headers)
    for filters in (request.rule.filters, request.backend.filters):
        if filters.response is not None:
            headers = filters.response.apply(headers)
    if head.status == 101:
        request.response.started = True
        if request.timeout is not None:
            request.timeout.reschedule(None)
        await splice(request.protocol, connection, headers, connection.limits.silence_timeout)
        return
    response = request.response
    first, complete = connection.take(), connection.complete
    await response.start(head.status, headers, head.length, first, complete=complete)
    if complete:
        return
    while data := await connection.read():
        await response.write(data)
    await response.end()
