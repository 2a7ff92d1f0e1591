"""Answers the requests of all listeners: finds the rule, and redirects or forwards."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from kube.serving.fair_queue import FairQueue
from kube.serving.protocol import UPGRADE
from kube.serving.uvicorn_modules import RequestResponseCycle
from netproxy.gateway import path_changes, request_target
from netproxy.gateway.client_response import ClientResponse
from netproxy.gateway.errors import BackendError, BackendTimeout, ClientGone, Refused
from netproxy.gateway.forwarding import Forwarded, Forwarder
from netproxy.gateway.header_changes import Header
from netproxy.gateway.path_table import Found
from netproxy.gateway.protocol import CYCLE, PROTOCOL, TARGET, GatewayProtocol
from netproxy.gateway.request import RoutedRequest
from netproxy.gateway.request_headers import body_length, forwarded_headers, is_websocket, origin_headers
from netproxy.gateway.request_target import RequestTarget, WrittenTarget
from netproxy.gateway.routing import PortTable
from netproxy.gateway.rule import CompiledFilters

log = logging.getLogger(__name__)
REQUESTS, PIECES = 8, 8
"""Requests begun, and large parts of responses written, in one iteration of the event loop: round robin over namespaces."""
STEPS_PER_TURN, BYTES_PER_TURN = 100, 2048
"""Steps of finding a rule, and bytes of a target that is brought to its normal form, that take about as long as the rest of a
request."""
_VERSIONS = ("1.0", "1.1")


class GatewayApplication:
    """The ASGI application; it uses the connection itself for responses."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder
        self._requests, self._pieces = FairQueue(REQUESTS), FairQueue(PIECES)

    async def __call__(self, scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        # Taken out of the scope: a request that is over must not keep its connection until the garbage collector comes.
        protocol: GatewayProtocol = scope.pop(PROTOCOL)
        cycle: RequestResponseCycle = scope.pop(CYCLE)
        response = ClientResponse(protocol, cycle, self._pieces)
        try:
            await self._serve(scope, receive, protocol, cycle, response)
        except Refused as refused:
            await _answer(response, refused.status, refused.text)
        except BackendTimeout as error:
            await _answer(response, 504, str(error))
        except BackendError as error:
            await _answer(response, 502, str(error))
        except ClientGone:
            response.abort()
        except Exception:
            log.exception("request of %s", protocol.who)
            await _answer(response, 500, "internal error")

    async def _serve(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[Any]],
        protocol: GatewayProtocol,
        cycle: RequestResponseCycle,
        response: ClientResponse,
    ) -> None:
        method, headers, version = scope["method"], scope["headers"], scope["http_version"]
        if version not in _VERSIONS:
            raise Refused(505, "HTTP version not supported")
        if method in ("CONNECT", "PRI"):
            raise Refused(405, "method not allowed")
        modern = version == "1.1"
        length = body_length(headers, chunks_allowed=modern)
        hosts = [value for name, value in headers if name == b"host"]
        written = request_target.split(scope[TARGET], hosts, requires_host=modern)
        table = protocol.routes()
        if table is None:
            raise Refused(404, "no route for this request")
        target, found = await self._find(table, written, method, headers, protocol)
        rule = found.rule
        response.owner = rule.namespace
        scheme = "http" if protocol.server_name is None else "https"
        if rule.redirect is not None:
            status = path_changes.redirect_status(rule.redirect)
            location = path_changes.redirect_location(rule.redirect, target, found.prefix, scheme, table.port)
            await response.answer(status, "", ((b"location", location.encode("latin-1")),))
            return
        backend = rule.choose()
        if backend is None:
            raise Refused(500, "the route has no backend that can be used")
        chain = (rule.filters, backend.filters)
        upgrade = modern and scope[UPGRADE] and is_websocket(method, headers)
        if upgrade and (length != 0 or cycle.more_body or cycle.body):
            raise Refused(400, "an upgrade with a body")
        host = next((each.hostname for each in reversed(chain) if each.hostname), target.authority)
        await self._forwarder.forward(
            Forwarded(
                protocol=protocol,
                cycle=cycle,
                receive=receive,
                response=response,
                rule=rule,
                backend=backend,
                method=method,
                target=_path(chain, found, target.path) + target.query,
                host=host,
                headers=_headers(chain, headers, protocol, scheme, target.authority, table),
                length=length,
                upgrade=upgrade,
                streaming=cycle.more_body,
            )
        )

    async def _find(
        self, table: PortTable, written: WrittenTarget, method: str, headers: list[Header], protocol: GatewayProtocol
    ) -> tuple[RequestTarget, Found]:
        """Find a request's rule when it is the turn of the host's namespace, which takes more turns for what that has cost.

        Its target is brought to its normal form then, too.
        """
        owner = table.owner(written.host) or protocol.namespace
        await self._requests.wait(owner)
        turns = len(written.rest) // BYTES_PER_TURN
        try:
            request = RoutedRequest(method, written.normal(), headers)
            try:
                found = table.find(request, protocol.server_name)
            finally:
                turns += request.steps // STEPS_PER_TURN
        finally:
            for _ in range(turns):
                await self._requests.wait(owner)
        if found.rule.namespace != owner:
            await self._requests.wait(found.rule.namespace)
        return request.target, found


def _path(chain: tuple[CompiledFilters, ...], found: Found, path: str) -> str:
    for filters in reversed(chain):
        if filters.path is not None:
            return filters.path.apply(path, found.prefix)
    return path


def _headers(
    chain: tuple[CompiledFilters, ...],
    headers: list[Header],
    protocol: GatewayProtocol,
    scheme: str,
    authority: str,
    table: PortTable,
) -> list[Header]:
    client = protocol.client[0] if protocol.client is not None else "unknown"
    kept = forwarded_headers(headers) + origin_headers(client, scheme, authority, table.port)
    for filters in chain:
        if filters.request is not None:
            kept = filters.request.apply(kept)
    return kept


async def _answer(response: ClientResponse, status: int, text: str) -> None:
    """Answer with an error, or close the connection if a response has begun."""
    if response.started or response.gone:
        response.abort()
        return
    try:
        await response.answer(status, text)
    except ClientGone:
        response.abort()
