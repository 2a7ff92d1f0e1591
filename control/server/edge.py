"""The ASGI edge: turns a socket's requests into `Request`s, and answers into ASGI messages.

A plain answer is two messages. A stream's chunks are sent as they come, and the stream is closed as soon as the client has
gone away, so that a dead watch holds nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from control.auth.user import ANONYMOUS, Credentials
from control.http.exchange import Request, Response, Stream, error_response
from control.http.pieces import whole
from control.http.protocol import CERTIFICATE, CYCLE, PROTOCOL, ApiProtocol
from control.server.metrics import labels_of
from control.server.pipeline import Pipeline
from kube import errors

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_LEFT = "the client went away in the middle of its request"


class Edge:
    """The ASGI application."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.streams: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        pairs: list[tuple[bytes, bytes]] = scope["headers"]
        headers = dict(pairs)
        # Taken out of the scope: a request that is over must not keep its connection until the garbage collector comes.
        protocol: ApiProtocol | None = scope.pop(PROTOCOL, None)
        cycle: RequestResponseCycle | None = scope.pop(CYCLE, None)
        body = _Body(headers, receive, cycle, self.pipeline.config.request_timeout)
        request = Request(scope["method"], scope["path"], scope["query_string"], headers, body.read)
        request.left, request.read_parts = body.left, body.parts
        if protocol is not None:
            request.until_left = protocol.until_lost
        request.extensions["headers"] = pairs
        request.extensions["scope"] = scope
        if protocol is not None and not protocol.connection.user:
            body.begun = lambda: _identify(protocol, request)
        credentials = Credentials(scope.get(CERTIFICATE), _bearer(headers), pairs)
        answer = await self.pipeline.answer(request, credentials)
        body.begun = _nothing
        if protocol is not None and not protocol.connection.user:
            _identify(protocol, request)
        if isinstance(answer, Response):
            await _send_whole(answer, scope, send, body, protocol, cycle)
        elif isinstance(answer, Stream):
            if protocol is not None:
                # A watch that is not read is taken up again where it ended; a log that is followed is not.
                protocol.patient = request.info.verb != "watch"
            running, labels = self.pipeline.metrics.long_running, labels_of(request)
            running[labels] = running.get(labels, 0) + 1
            try:
                await self._send_stream(answer, scope, receive, send, body, protocol, cycle)
            finally:
                running[labels] -= 1
        else:
            try:
                instead = await answer.splice(protocol)
            except errors.StatusError as error:
                instead = error_response(error)
            if instead is not None:
                # The client may have begun to speak the protocol it asked for: nothing after this can be a request.
                instead.headers.append((b"connection", b"close"))
                body.done = True
                await _send_whole(instead, scope, send, body, protocol, cycle)

    async def _send_stream(
        self,
        answer: Stream,
        scope: Scope,
        receive: Receive,
        send: Send,
        body: _Body,
        protocol: ApiProtocol | None,
        cycle: RequestResponseCycle | None,
    ) -> None:
        await body.drain()
        if scope["http_version"] != "1.1" or scope["method"] == "HEAD":
            protocol = None  # no chunks there
        headers = [(b"content-type", answer.content_type), *answer.headers]
        if not body.done:
            # What was not read cannot be distinguished from the next request.
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})

        async def pump() -> None:
            async for chunk in answer.chunks:
                if not chunk:
                    continue
                if protocol is not None and cycle is not None:
                    await protocol.write_chunk(cycle, chunk)
                else:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

        # The first flush lets clients know at once that the watch has begun.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        task = asyncio.create_task(pump(), name=f"stream {answer.content_type.decode()}")
        self.streams.add(task)
        gone = asyncio.create_task(_disconnected(receive), name="stream-disconnect")
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pending in (task, gone):
                if not pending.done():
                    pending.cancel()
            results = await asyncio.gather(task, gone, return_exceptions=True)
            self.streams.discard(task)
            close = getattr(answer.chunks, "aclose", None)
            if close is not None:
                with contextlib.suppress(RuntimeError):
                    await close()
        if isinstance(results[0], Exception):
            raise results[0]


class _Body:
    """A request's body, read on demand and never past its limit."""

    def __init__(
        self, headers: dict[bytes, bytes], receive: Receive, cycle: RequestResponseCycle | None, seconds: float
    ) -> None:
        self._receive, self._cycle, self._seconds = receive, cycle, seconds
        self.begun: Callable[[], None] = _nothing
        """Called when somebody begins to read, which is after authentication."""
        length = headers.get(b"content-length")
        self.length = int(length) if length and length.isdigit() else None
        self.chunked = b"transfer-encoding" in headers
        self.done = not self.chunked and not self.length

    def left(self) -> bool:
        """Tell whether the client has closed its connection."""
        return self._cycle is not None and self._cycle.disconnected

    async def read(self, limit: int) -> bytes:
        if self.done:
            return b""
        if self.length is not None and self.length > limit:
            raise errors.too_large(limit)
        self.begun()
        if self._cycle is not None and not self._cycle.more_body:
            return await self._parts(limit)
        # A client that sends slowly has as long as any request, also where what becomes of the body may take longer.
        async with asyncio.timeout(self._seconds):
            return await self._parts(limit)

    async def _parts(self, limit: int) -> bytes:
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                # Half a body must not be taken for a whole one: a DELETE would lose its preconditions.
                raise errors.bad_request(_LEFT)
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > limit:
                raise errors.too_large(limit)
            more = bool(message.get("more_body"))
        self.done = True
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes, without a limit; raises 400 where the client leaves in the middle of it."""
        if not self.done:
            self.begun()
        while not self.done:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise errors.bad_request(_LEFT)
            self.done = not message.get("more_body")
            if part := message.get("body"):
                yield part

    async def drain(self) -> None:
        """Take the end of an empty body off the channel, so that what comes next is the client's going away."""
        if self.done and self.length is None and not self.chunked:
            await self._receive()


async def _send_whole(
    answer: Response,
    scope: Scope,
    send: Send,
    body: _Body,
    protocol: ApiProtocol | None,
    cycle: RequestResponseCycle | None,
) -> None:
    headers = list(answer.headers)
    if answer.status != 304:
        headers += [(b"content-type", answer.content_type), (b"content-length", str(len(answer.body)).encode())]
    if not body.done:
        # What was not read cannot be distinguished from the next request.
        headers.append((b"connection", b"close"))
    if protocol is not None and cycle is not None:
        if not protocol.respond(cycle, answer.status, headers, answer.body):
            await protocol.respond_in_pieces(cycle, answer.status, headers, answer.body)
        return
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else whole(answer.body)})


def _nothing() -> None:
    pass


def _identify(protocol: ApiProtocol, request: Request) -> None:
    """Note who uses a connection, unless that is nobody."""
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
