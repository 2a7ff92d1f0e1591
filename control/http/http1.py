"""HTTP/1 to a backend: the request's head, and the response as a whole, as a stream or as a connection that is spliced.

The head of the response is read first. Only a 101 makes the connection a pipe (CVE-2018-1002105): any other response is
forwarded as an ordinary one and the connection to the backend closed. A redirect is a response like any other and is never
followed (CVE-2020-8559).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping

import httptools
import msgspec

from control.http.chunks import Chunks, Release
from control.http.exchange import Header, Response
from control.http.protocol import ApiProtocol
from kube import errors

HEAD_LIMIT = 64 * 1024
ERROR_LIMIT = 50_000
CHUNK = 64 * 1024
_ANNOUNCEMENTS = 8
"""Heads with a status of 1xx that may come before the answer's own."""
_STATUS_LINE = re.compile(rb"HTTP/1\.[0-9] ([1-5][0-9]{2})(?: [^\r\n\0]*)?")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\r\n\0]*)")
_DROPPED_REQUEST_HEADERS = frozenset(
    {
        b"authorization",
        b"expect",
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"keep-alive",
        b"te",
        b"trailer",
        b"proxy-authorization",
        b"proxy-connection",
        b"x-remote-user",
        b"x-remote-group",
        b"x-remote-uid",
    }
)
_HOP_BY_HOP = frozenset({b"connection", b"transfer-encoding", b"keep-alive", b"upgrade", b"trailer", b"content-length"})
_CROSS_ORIGIN = frozenset(
    b"access-control-allow-" + what for what in (b"credentials", b"headers", b"methods", b"origin")
)
"""Headers with which a backend would let pages of other sites use the API server's address (upstream: removeCORSHeaders in
apimachinery, util/proxy/upgradeaware.go)."""
_DROPPED_RESPONSE_HEADERS = _HOP_BY_HOP | _CROSS_ORIGIN | {b"content-type", b"date"}


class Head(msgspec.Struct):
    """An answer's first part; `raw` is how it came, `rest` what came behind it."""

    status: int
    headers: list[Header]
    raw: bytes
    rest: bytes = b""


def request_head(
    method: str,
    target: str,
    host: str,
    headers: list[Header],
    *,
    upgrade: bool,
    length: int | None = 0,
    added: Iterable[Header] = (),
) -> bytes:
    """Return the head of a request to a backend: the client's headers without its credentials, and what is `added` to them.

    `length` bytes of body follow, or chunks (None).
    """
    lines = [f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n".encode("latin-1")]
    for name, value in headers:
        lowered = name.lower()
        if lowered in _DROPPED_REQUEST_HEADERS or lowered.startswith((b"impersonate-", b"x-remote-extra-")):
            continue
        if lowered in (b"connection", b"upgrade") and not upgrade:
            continue
        lines.append(b"%b: %b\r\n" % (name, value))
    lines += [b"%b: %b\r\n" % header for header in added]
    if length is None:
        lines.append(b"Transfer-Encoding: chunked\r\n")
    elif length or not upgrade:
        lines.append(b"Content-Length: %d\r\n" % length)
    if not upgrade:
        lines.append(b"Connection: close\r\n")
    return b"".join(lines) + b"\r\n"


def body_length(headers: Mapping[bytes, bytes]) -> int | None:
    """Return how many bytes of body follow a request's head, None if they come in chunks."""
    return None if b"transfer-encoding" in headers else int(headers.get(b"content-length") or 0)


async def read_head(reader: asyncio.StreamReader, *, upgrade: bool = False) -> Head:
    """Read an answer's head, past those that announce it; raises 502 for what is no HTTP, or a 101 that was not requested."""
    for _ in range(_ANNOUNCEMENTS):
        head = await _next_head(reader)
        if head.status >= 200 or (head.status == 101 and upgrade):
            return head
        if head.status == 101:
            break
    raise _bad_gateway()


async def _next_head(reader: asyncio.StreamReader) -> Head:
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ssl.SSLError) as error:
        raise _bad_gateway() from error
    if len(raw) > HEAD_LIMIT:
        raise _bad_gateway()
    first, *lines = raw[:-4].split(b"\r\n")
    status = _STATUS_LINE.fullmatch(first)
    if status is None:
        raise _bad_gateway()
    headers = []
    for line in lines:
        # A line break or a NUL in a value would be one to whoever reads it after us.
        header = _HEADER.fullmatch(line)
        if header is None:
            raise _bad_gateway()
        headers.append((header[1].lower(), header[2].strip(b" \t")))
    return Head(int(status[1]), headers, raw)


def _bad_gateway() -> errors.StatusError:
    return errors.StatusError(502, "", "the node's answer could not be read")


class _Parser(msgspec.Struct):
    """Collects body bytes from httptools."""

    chunks: list[bytes] = msgspec.field(default_factory=list)
    done: bool = False

    def on_body(self, body: bytes) -> None:
        self.chunks.append(body)

    def on_message_complete(self) -> None:
        self.done = True


def body_chunks(head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Chunks:
    """Return an answer's body, unwrapped from its transfer coding. The connection is closed at its end, or with the chunks."""

    async def release() -> None:
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.wait_closed()

    return Chunks(lambda release: _body(head, reader, release), release)


async def _body(head: Head, reader: asyncio.StreamReader, release: Release) -> AsyncIterator[bytes]:
    """Yield a body, and release its connection at the end.

    What is read at once is yielded at once, however small its chunks are, and others have their turn before the next read.
    """
    sink = _Parser()
    parser = httptools.HttpResponseParser(sink)
    try:
        data = head.raw
        while True:
            try:
                parser.feed_data(data)
            except httptools.HttpParserUpgrade:
                return
            except httptools.HttpParserError as error:
                raise _bad_gateway() from error
            if sink.chunks:
                yield b"".join(sink.chunks)
                sink.chunks.clear()
            if sink.done:
                return
            await asyncio.sleep(0)  # a read does not wait where data is there
            data = await reader.read(CHUNK)
            if not data:
                return
    finally:
        await release()


async def whole(head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int) -> bytes:
    """Return an answer's body up to a limit."""
    parts, size = [], 0
    chunks = body_chunks(head, reader, writer)
    async with contextlib.aclosing(chunks):
        async for chunk in chunks:
            parts.append(chunk)
            size += len(chunk)
            if size >= limit:
                break
    return b"".join(parts)[:limit]


def as_response(head: Head, body: bytes) -> Response:
    """Turn an agent's answer into ours, without what belongs to the connection or to its own site."""
    kind = next((value for name, value in head.headers if name == b"content-type"), b"text/plain; charset=utf-8")
    kept = [(n, v) for n, v in head.headers if n not in _DROPPED_RESPONSE_HEADERS]
    return Response(head.status, body, kind, kept)


async def splice(protocol: ApiProtocol, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Join a client's connection and a node's after a 101 until either side ends."""
    if protocol.transport.is_closing():
        writer.close()  # the client has left while the node was dialled
        return
    ended = asyncio.Event()
    writing: asyncio.Transport = writer.transport  # type: ignore[assignment]

    resume = asyncio.Event()

    def from_client(data: bytes) -> None:
        writing.write(data)
        if writing.get_write_buffer_size() > HEAD_LIMIT:
            protocol.transport.pause_reading()
            resume.set()

    async def resume_client() -> None:
        while True:
            await resume.wait()
            resume.clear()
            await writer.drain()
            with contextlib.suppress(RuntimeError):
                protocol.transport.resume_reading()

    async def from_node() -> None:
        while data := await reader.read(CHUNK):
            protocol.transport.write(data)
            await protocol.flow.drain()
        # What was written last has to leave before the connection closes.

    transport = protocol.takeover(from_client, ended.set)
    transport.write(head.raw)
    tasks = [
        asyncio.create_task(from_node(), name="splice-from-node"),
        asyncio.create_task(resume_client(), name="splice-from-client"),
        asyncio.create_task(ended.wait(), name="splice-client-gone"),
    ]
    try:
        await asyncio.wait((tasks[0], tasks[2]), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        transport.close()
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError, TimeoutError):
            async with asyncio.timeout(1):
                await writer.wait_closed()
