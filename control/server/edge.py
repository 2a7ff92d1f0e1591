"""The ASGI edge: turns a socket's requests into `Request`s, and answers into ASGI messages.

A plain answer is two messages. A stream's chunks are sent as they come, and the stream is closed as soon as the client has
gone away, so that a dead watch holds nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from control.auth.user import ANONYMOUS, Credentials
from control.http.exchange import Header, Request, Response, Stream, Upgrade, error_response, never
from control.http.pieces import whole
from control.http.protocol import CERTIFICATE, CYCLE, PROTOCOL, ApiProtocol
from control.server.metrics import labels_of
from control.server.pipeline import Pipeline
from control.server.request_body import Receive, RequestBody, do_nothing
from kube import errors
from kube.serving.uvicorn_modules import RequestResponseCycle
from kube.step_limit import Limit, limited

Scope = dict[str, Any]
Message = dict[str, Any]
Send = Callable[[Message], Awaitable[None]]


class _Exchange(NamedTuple):
    """A request and its connection, whose `protocol` and `cycle` a test's transport does not have."""

    scope: Scope
    receive: Receive
    send: Send
    body: RequestBody
    protocol: ApiProtocol | None
    cycle: RequestResponseCycle | None


class Edge:
    """The ASGI application."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.streams: set[asyncio.Task[None]] = set()
        self.exchanged = 0
        """Number of requests of clients on sockets, and of chunks of streams that they were sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.exchanged += 1
        pairs: list[tuple[bytes, bytes]] = scope["headers"]
        headers = dict(reversed(pairs))  # the first of a name counts, as to upstream
        # Taken out of the scope: a request that is over must not keep its connection until the garbage collector comes.
        protocol: ApiProtocol | None = scope.pop(PROTOCOL, None)
        cycle: RequestResponseCycle | None = scope.pop(CYCLE, None)
        body = RequestBody(headers, receive, cycle, self.pipeline.config.request_timeout, protocol)
        request = Request(
            scope["method"],
            scope["path"],
            scope["query_string"],
            headers,
            body.read,
            left=body.left,
            until_left=never if protocol is None else protocol.until_lost,
            read_parts=body.parts,
            collect=body.collect if body.incomplete else None,
        )
        request.extensions["headers"] = pairs
        request.extensions["scope"] = scope
        if protocol is not None and not protocol.connection.user:
            body.begun = lambda: _identify(protocol, request)
        credentials = Credentials(scope.get(CERTIFICATE), _bearer(headers), pairs, protocol)
        answer = await self.pipeline.answer(request, credentials)
        body.begun = do_nothing
        body.release()
        if protocol is not None and not protocol.connection.user:
            _identify(protocol, request)
        exchange = _Exchange(scope, receive, send, body, protocol, cycle)
        if isinstance(answer, Response):
            sent = _headers(answer, body)
            if protocol is None or cycle is None or not protocol.respond(cycle, answer.status, sent, answer.body):
                await _send_whole(answer, sent, exchange)
            return
        try:
            if isinstance(answer, Stream):
                await self._stream(answer, request, exchange)
            else:
                await _hand_over(answer, exchange)
        finally:
            await answer.close()

    async def _stream(self, answer: Stream, request: Request, exchange: _Exchange) -> None:
        if exchange.protocol is not None:
            # A watch that is not read is taken up again where it ended; a log that is followed is not.
            exchange.protocol.may_read_slowly = request.info.verb != "watch"
        running, labels = self.pipeline.metrics.long_running, labels_of(request)
        running[labels] = running.get(labels, 0) + 1
        try:
            await self._send_stream(answer, exchange, self.pipeline.stream_limit(request))
        finally:
            running[labels] -= 1

    async def _send_stream(self, answer: Stream, exchange: _Exchange, limit: Limit) -> None:
        body, send, protocol, cycle = exchange.body, exchange.send, exchange.protocol, exchange.cycle
        await body.drain()
        if exchange.scope["http_version"] != "1.1" or exchange.scope["method"] == "HEAD":
            protocol = None  # no chunks there
        headers = [(b"content-type", answer.content_type), *answer.headers]
        if not body.done:
            # What was not read cannot be distinguished from the next request.
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})

        async def write_chunks() -> None:
            async for chunk in answer.chunks:
                if not chunk:
                    continue
                self.exchanged += 1
                if protocol is not None and cycle is not None:
                    await protocol.write_chunk(cycle, chunk)
                else:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

        async def pump() -> None:
            await limited(write_chunks(), limit)

        # The first flush lets clients know at once that the watch has begun.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        task = asyncio.create_task(pump(), name=f"stream {answer.content_type.decode()}")
        self.streams.add(task)
        gone = asyncio.create_task(_disconnected(exchange.receive), name="stream-disconnect")
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pending in (task, gone):
                if not pending.done():
                    pending.cancel()
            results = await asyncio.gather(task, gone, return_exceptions=True)
            self.streams.discard(task)
        if isinstance(results[0], Exception):
            try:
                raise results[0]
            finally:
                del results  # the traceback refers to this frame


def _headers(answer: Response, body: RequestBody) -> list[Header]:
    """Return the headers of a whole answer; those of the answer itself are used up."""
    headers = answer.headers
    if answer.status != 304:
        headers += ((b"content-type", answer.content_type), (b"content-length", b"%d" % len(answer.body)))
    if not body.done:
        # What was not read cannot be distinguished from the next request.
        headers.append((b"connection", b"close"))
    return headers


async def _hand_over(answer: Upgrade, exchange: _Exchange) -> None:
    """Hand over the connection, or send the answer that is given instead."""
    try:
        instead = await answer.splice(exchange.protocol)
    except errors.StatusError as error:
        instead = error_response(error)
    if instead is not None:
        # The client may have begun to speak the protocol it requested: nothing after this can be a request.
        instead.headers.append((b"connection", b"close"))
        exchange.body.done = True
        await _send_whole(instead, _headers(instead, exchange.body), exchange)


async def _send_whole(answer: Response, headers: list[Header], exchange: _Exchange) -> None:
    protocol, cycle, send = exchange.protocol, exchange.cycle, exchange.send
    if protocol is not None and cycle is not None:
        await protocol.respond_in_pieces(cycle, answer.status, headers, answer.body)
        return
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    is_head = exchange.scope["method"] == "HEAD"
    await send({"type": "http.response.body", "body": b"" if is_head else whole(answer.body)})


def _identify(protocol: ApiProtocol, request: Request) -> None:
    """Record the authenticated user of a connection."""
    user = getattr(request, "user", None)
    if user is not None and user.name != ANONYMOUS:
        protocol.identified(user.name)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _bearer(headers: dict[bytes, bytes]) -> str | None:
    value = headers.get(b"authorization")
    if value is None:
        return None
    scheme, _, token = value.partition(b" ")
    if scheme.lower() != b"bearer" or not token.strip():
        return None
    return token.strip().decode("latin-1")
