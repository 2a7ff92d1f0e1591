"""Requests and responses, independent of the transport: the ASGI application and the in-process client use both.

Header names are lower-case bytes as ASGI has them. A handler returns a `Response` (whole), a `Stream` (chunks as they
come; watches and logs), or an `Upgrade` (the connection itself is handed over).
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from control.auth.audit import AuditContext
from control.auth.user import AuthzAttributes, UserInfo
from control.decoding.yaml_body import ReadBody, read_ahead
from control.event_loop.weight import weight
from control.fairness.fairness import Flow
from control.http import chunks, encodings, query
from control.http.accept import LONGEST
from control.http.negotiate import negotiate
from control.http.pieces import Body
from control.interfaces.requestinfo import RequestInfo, parse_path
from kube import errors
from kube.schema import wire
from kube.serving.protocol import UPGRADE
from kube.tracing.spans import Span, active

Header = tuple[bytes, bytes]
JSON = b"application/json"
_INTEGER = re.compile(r"[+-]?[0-9]+")
"""Syntax of Go's integers; Python's int() also accepts underscores, blanks and other scripts' digits."""
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
"""Texts that Go's strconv.ParseBool parses as true."""
_TRACE = frozenset((b"traceparent", b"tracestate"))
_FOR_PEOPLE = (b"curl", b"Wget", b"Mozilla/5.0")
MOST_OPTIONS = 2000
"""Options of a query, which is parsed before authentication; the words of an exec's command are options, too."""


class Response(msgspec.Struct):
    """A whole answer."""

    status: int
    body: Body = b""
    content_type: bytes = JSON
    headers: list[Header] = []


class Stream(msgspec.Struct):
    """An answer in chunks. Whoever gets it closes it, whether or not it was iterated: it holds connections and watchers."""

    chunks: AsyncIterator[bytes]
    content_type: bytes = JSON
    status: int = 200
    headers: list[Header] = msgspec.field(default_factory=list)

    async def close(self) -> None:
        """Close the iterator, and release what it holds."""
        await chunks.close(self.chunks)


class Upgrade(msgspec.Struct):
    """A request that wants the raw connection: `splice` gets it from the transport's edge, or returns an ordinary answer.

    `stream` is what it holds before that. Whoever gets the answer closes it, whether or not `splice` was called.
    """

    splice: Callable[[Any], Awaitable[Response | None]]
    stream: Stream | None = None

    async def close(self) -> None:
        """Close the stream."""
        if self.stream is not None:
            await self.stream.close()


Answer = Response | Stream | Upgrade
Handler = Callable[["Request"], Awaitable[Answer]]


def _stays() -> bool:
    return False


async def never() -> None:
    """Wait until cancelled: for a client that does not leave."""
    await asyncio.get_running_loop().create_future()


class Request:
    """One request. `user` is filled in on the way; `warnings` become Warning headers.

    `left` returns whether the client has closed its connection, and `until_left` waits for that; long work for its answer then
    ends. `read_parts` yields the body as it comes, and raises 400 if the client leaves in the middle of it. `collect` receives
    an incomplete body of at most so many bytes, so that the request waits for it without a seat.
    """

    __slots__ = (
        "_body",
        "_query",
        "_weighed",
        "active_span",
        "attributes",
        "audit_id",
        "collect",
        "extensions",
        "flow",
        "headers",
        "info",
        "left",
        "method",
        "note",
        "path",
        "query_string",
        "read_body",
        "read_parts",
        "span",
        "until_left",
        "user",
        "warnings",
    )

    info: RequestInfo
    user: UserInfo
    attributes: AuthzAttributes
    """The request as it was authorized."""

    def __init__(
        self,
        method: str,
        path: str,
        query_string: bytes,
        headers: dict[bytes, bytes],
        read_body: Callable[[int], Awaitable[bytes]],
        *,
        left: Callable[[], bool] = _stays,
        until_left: Callable[[], Awaitable[None]] = never,
        read_parts: Callable[[], AsyncIterator[bytes]] | None = None,
        collect: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        self.method, self.path, self.query_string, self.headers = method, path, query_string, headers
        self.info = parse_path(method, path)
        self.read_body = read_body
        self._body: bytes | None = None
        self._weighed: tuple[bytes | None, int] = None, 0
        self._query: dict[str, list[str]] | None = None
        self.warnings: list[str] = []
        self.audit_id = ""
        self.note: AuditContext | None = None
        """The request's entry in the audit log, if the policy wants one; control/server/auditing.py."""
        self.extensions: dict[str, Any] = {}
        self.left, self.until_left, self.read_parts, self.collect = left, until_left, read_parts, collect
        self.flow: Flow | None = None
        """Flow of the request in priority and fairness, once it is known."""
        self.span: Span | None = None
        """The request's span, if tracing is configured; control/server/request_spans.py."""
        self.active_span: active | None = None

    @property
    def query(self) -> dict[str, list[str]]:
        if self._query is None:
            if self.query_string.count(b"&") >= MOST_OPTIONS:
                raise errors.bad_request(f"more than {MOST_OPTIONS} query options")
            self._query = query.read(self.query_string) if self.query_string else {}
        return self._query

    def option(self, name: str, default: str = "") -> str:
        """Return a query parameter's first value."""
        values = self.query.get(name) if self.query_string else None
        return values[0] if values else default

    def flag(self, name: str) -> bool | None:
        """Return a boolean query parameter as Go's conversion reads it: anything but "false" and "0" is true."""
        values = self.query.get(name) if self.query_string else None
        return None if not values else values[0].lower() not in ("false", "0")

    @property
    def pretty(self) -> bool:
        """Return whether JSON is answered with line breaks: by the option, otherwise for curl, Wget and browsers.

        Upstream: isPrettyPrint (apiserver/pkg/endpoints/handlers/negotiation). Raises nothing: an error's answer asks too.
        """
        if b"pretty" in self.query_string and self.query_string.count(b"&") < MOST_OPTIONS:
            pretty = self.option("pretty")
            if pretty:
                return pretty in _TRUE
        return self.headers.get(b"user-agent", b"").startswith(_FOR_PEOPLE)

    def number(self, name: str) -> int | None:
        """Return an integer query parameter; raises 400 if it is not one."""
        values = self.query.get(name) if self.query_string else None
        if not values:
            return None
        text = values[0]
        problem = "invalid syntax"
        if _INTEGER.fullmatch(text):
            if len(text) < 40 and -(1 << 63) <= (found := int(text)) < 1 << 63:
                return found
            problem = "value out of range"
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": {problem}')

    def header(self, name: bytes) -> str:
        """Return a header's value, "" where there is none."""
        return self.headers.get(name, b"").decode("latin-1")

    @property
    def sent(self) -> bytes:
        """Return the part of the body that was read."""
        return self._body or b""

    @property
    def weight(self) -> int:
        """Weight of the received part of the body (control/event_loop/weight.py), which is counted once."""
        body, size = self._weighed
        if body is not self._body:
            size = weight(self.sent, self.header(b"content-type"))
            self._weighed = self._body, size
        return size

    async def body(self, limit: int) -> bytes:
        """Return the whole body; raises 413 past `limit` bytes."""
        if self._body is None:
            self._body = await self.read_body(limit)
        return self._body

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes, without a limit; raises 400 if the client leaves in the middle of it."""
        if self._body is None and self.read_parts is not None:
            async for part in self.read_parts():
                yield part
        elif body := await self.body(sys.maxsize):
            yield body

    async def document(self, limit: int) -> bytes:
        """Return the whole body for a decoder, with large YAML read already; raises 413 past `limit` bytes."""
        body = await self.body(limit)
        if b"yaml" in self.headers.get(b"content-type", b"").lower() and not isinstance(body, ReadBody):
            body = self._body = await read_ahead(body, self.user.name)
        return body


def typed_response(request: Request, value: dict[str, Any], module: str, kind: str, status: int = 200) -> Response:
    """Return a value of a type (module "authentication_v1", "TokenRequest") as the client accepts it; raises 406."""
    wanted = negotiate(request.header(b"accept"), transform=False, protobuf=wire.known(module, kind))
    body = encodings.write(value, wanted, module, kind)
    return Response(status, indented(body, wanted.content_type, pretty=request.pretty), wanted.content_type)


def indented(body: bytes, content_type: bytes, *, pretty: bool) -> bytes:
    """Return a JSON body with line breaks where they are wanted, any other as it is."""
    return msgspec.json.format(body, indent=2) if pretty and body and content_type.startswith(JSON) else body


def error_response(error: errors.StatusError, accept: str = "", *, pretty: bool = False) -> Response:
    """Write an error as its Status, with Retry-After where the client is to come back.

    A code that HTTP does not have, which a webhook may return, is in the Status only; the response has 500.
    """
    headers: list[Header] = []
    if error.retry_after and error.code in (429, 503, 504, 409, 500):
        headers.append((b"retry-after", b"%d" % error.retry_after))
    if error.code == 401:
        headers.append((b"www-authenticate", b'Bearer realm="kubernetes-api"'))
    # The frames that it came through hold the error and the request, all of which would wait for the garbage collector.
    error.__traceback__ = None
    body, content_type = encodings.status_bytes(error.to_status(), accept)
    code = error.code if 100 <= error.code < 600 else 500
    return Response(code, indented(body, content_type, pretty=pretty), content_type, headers)


def wants_upgrade(request: Request) -> bool:
    """Return whether a request requests another protocol on its connection: in the parser's view too, if it had one."""
    if not request.extensions.get("scope", {}).get(UPGRADE, True):
        return False
    tokens = request.headers.get(b"connection", b"")[:LONGEST].lower().replace(b" ", b"").split(b",")
    return b"upgrade" in tokens and bool(request.headers.get(b"upgrade"))


def wants_socket(request: Request) -> bool:
    """Return whether a request is for a WebSocket."""
    return wants_upgrade(request) and request.headers[b"upgrade"].lower() == b"websocket"


def headers_of(request: Request) -> list[Header]:
    """Return a request's headers as they came, repeated ones too."""
    found: list[Header] = request.extensions.get("headers") or list(request.headers.items())
    return found


def forwarded_headers(request: Request) -> list[Header]:
    """Return a request's headers for another server, with the request's own span instead of the client's."""
    if request.span is None:
        return headers_of(request)
    return [header for header in headers_of(request) if header[0].lower() not in _TRACE] + trace_headers(request)


def trace_headers(request: Request) -> list[Header]:
    """Return the header that names a request's span for another server."""
    return [(b"traceparent", request.span.traceparent.encode())] if request.span is not None else []
