"""One GET request over HTTP/1.1 to a container, for probes and hooks.

Whoever answers is not trusted: without limits on what is read at once, and on what is read without giving anything, one pod's
server occupies the event loop for all. A read is of `READ_BYTES`; an answer's head has `HEAD_BYTES` in `HEAD_LINES` (those of
informational answers before it, five at most, count as well; Go's transport takes 1 MiB), and of its body `body_bytes` are
read, in `PIECES` at most. The connection is then closed; none is used twice. Certificates are what the caller's `tls` checks.

h11 takes the answer apart. It needs 12 µs for a header and 24 µs for a chunk, so it gets nothing before it was counted.
What fails has the words of Go's client, for users know and search for those.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import SplitResult, quote, urlsplit

import h11

from agent import host_lookups
from agent.threads import Owner
from kube.tls_records import Records

READ_BYTES = 16 << 10
HEAD_BYTES, HEAD_LINES = 64 << 10, 256
INFORMATIONAL = 5
"""As Go's transport had it (max1xxResponses), which now counts their bytes alone."""
PIECES = 128
"""Chunks that are read of a body at most, and WIRE_BYTES of their lengths, extensions and trailers with it."""
WIRE_BYTES = 64 << 10
BROKEN = "net/http: HTTP/1.x transport connection broken: "
AWAITING_HEADERS = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
READING_BODY = "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9a-zA-Z]+")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_NOT_SENT = ("host", "content-length", "transfer-encoding", "trailer")
"""Headers that Go's client leaves out of what it is given; Host has its own place."""
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SAFE = "/%:@!$&'()*+,;=~-._"
_QUOTED = re.compile(r"""b'(?:[^'\\]|\\.)*'|b"(?:[^"\\]|\\.)*\"""")


class AnswerError(Exception):
    """The received bytes are not a response, or exceed a limit."""


class BodyError(AnswerError):
    """The same, in an answer's body."""


class BodyTimeoutError(TimeoutError):
    """The head came in time, and the body did not."""


class ConnectError(Exception):
    """No connection was made; `error` says why: an OSError, or a UnicodeError of a name that is none."""

    def __init__(self, error: OSError | UnicodeError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class Answer:
    """The received part of a response."""

    status: int
    location: bytes = b""
    body: bytes = b""


async def get(
    url: str, headers: Mapping[str, str], owner: Owner, tls: ssl.SSLContext, deadline: float, body_bytes: int
) -> Answer:
    """GET a URL, for a pod, until a time of the event loop's clock.

    Raise TimeoutError, ConnectError, EOFError for no answer at all, other OSErrors (ssl.SSLError too), AnswerError, and
    ValueError for what cannot be asked.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f'unsupported protocol scheme "{parts.scheme}"')
    if not parts.hostname:
        raise ValueError("http: no Host in request URL")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
    request = _request(parser, parts, headers)
    late, opened, whole = AWAITING_HEADERS, None, False
    try:
        async with asyncio.timeout_at(deadline):
            opened = connection, _ = await _connect(
                parts.hostname, port, owner, tls if parts.scheme == "https" else None
            )
            connection.transport.write(request)
            status, location = await _head(connection, parser)
            late = READING_BODY
            body = await _body(connection, parser, body_bytes) if body_bytes and status != 101 else b""
            whole = not body_bytes or parser.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)
            return Answer(status, location, body)
    except TimeoutError as error:
        if error.errno is not None:  # the kernel's ETIMEDOUT
            raise AnswerError(os.strerror(error.errno).lower()) from error
        raise (TimeoutError if late is AWAITING_HEADERS else BodyTimeoutError)(late) from error
    finally:
        if opened is not None:
            opened[0].close(opened[1], whole=whole)


# -- the request --------------------------------------------------------------------------------------------------
def _request(parser: h11.Connection, parts: SplitResult, headers: Mapping[str, str]) -> bytes:
    """Form the request; ValueError names a header that cannot be sent, as Go does."""
    host = next((value for name, value in headers.items() if name.lower() == "host" and value), "") or _host(parts)
    lines = [(b"Host", host.strip(" \t").encode())]
    closes = b"close"
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"net/http: invalid header field name {json.dumps(name)}")
        if not _VALUE.fullmatch(value):
            raise ValueError(f"net/http: invalid header field value for {json.dumps(name)}")
        encoded = value.strip(" \t").encode(errors="replace")
        if name.lower() == "connection":
            closes = encoded
        elif name.lower() not in _NOT_SENT:
            lines.append((name.encode(), encoded))
    lines.append((b"Connection", closes))
    path = quote(_BROKEN_ESCAPE.sub("%25", parts.path), safe=_SAFE) or "/"
    query = quote(_BROKEN_ESCAPE.sub("%25", parts.query), safe=_SAFE + "?[]")
    try:
        head = parser.send(h11.Request(method="GET", target=f"{path}?{query}" if query else path, headers=lines))
    except h11.LocalProtocolError as error:
        raise ValueError(f"net/http: {error}") from error
    parser.send(h11.EndOfMessage())
    return head or b""


def _host(parts: SplitResult) -> str:
    """Return a URL's host and port without a user and without an address's zone."""
    host = parts.netloc.rpartition("@")[2]
    host = re.sub("%[^]]*]", "]", host)
    return host if host.isascii() else host.encode("idna").decode()


# -- the answer ---------------------------------------------------------------------------------------------------
async def _head(connection: _Connection, parser: h11.Connection) -> tuple[int, bytes]:
    """Read until the end of the answer's head; return its status and Location."""
    read = bytearray()
    left, lines, informational = HEAD_BYTES, HEAD_LINES, 0
    while True:
        searched, checked = 0, False
        while not (found := _END_OF_HEAD.search(read, searched)):
            searched = max(0, len(read) - 2)
            if not checked:
                checked = _status(read) is not None
            if len(read) > left:
                raise AnswerError(f"net/http: server response headers exceeded {HEAD_BYTES} bytes; aborted")
            if read.count(b"\n") > lines:
                raise AnswerError(f"net/http: server response headers exceeded {HEAD_LINES} lines; aborted")
            data = await connection.read()
            if not data:
                if read:
                    raise AnswerError(f"{BROKEN}unexpected EOF")
                raise EOFError("EOF")
            read += data
        status = _status(read)
        end = found.end()
        left -= end
        lines -= read.count(b"\n", 0, end)
        if left < 0:
            raise AnswerError(f"net/http: server response headers exceeded {HEAD_BYTES} bytes; aborted")
        if lines < 0:
            raise AnswerError(f"net/http: server response headers exceeded {HEAD_LINES} lines; aborted")
        if status == 101:
            return 101, b""
        try:
            parser.receive_data(bytes(read[:end]))
            event = parser.next_event()
        except h11.RemoteProtocolError as error:
            raise AnswerError(BROKEN + malformed(str(error))) from error
        del read[:end]
        if isinstance(event, h11.Response):
            if read:
                parser.receive_data(bytes(read))
            location = next((value for name, value in event.headers if name == b"location"), b"")
            return event.status_code, location
        informational += 1
        if informational > INFORMATIONAL:
            raise AnswerError("net/http: too many 1xx informational responses")


def _status(read: bytearray) -> int | None:
    """Return the status once its line has come; AnswerError for a line that is none."""
    end = read.find(b"\n")
    if end < 0:
        return None
    line = read[:end].removesuffix(b"\r").decode(errors="replace")
    version, space, rest = line.partition(" ")
    if not space:
        raise AnswerError(f"{BROKEN}malformed HTTP response {json.dumps(line)}")
    code = rest.lstrip(" ").partition(" ")[0]
    if not (len(code) == 3 and code.isascii() and code.isdigit()):
        raise AnswerError(f"{BROKEN}malformed HTTP status code {json.dumps(code)}")
    if not re.fullmatch(r"HTTP/[0-9]\.[0-9]", version):
        raise AnswerError(f"{BROKEN}malformed HTTP version {json.dumps(version)}")
    return int(code)


async def _body(connection: _Connection, parser: h11.Connection, most: int) -> bytes:
    """Read a body to its end, or as much of it as is wanted."""
    body, wire = b"", 0
    for _ in range(PIECES):
        try:
            while (event := parser.next_event()) is h11.NEED_DATA:
                data = await connection.read()
                wire += len(data)
                parser.receive_data(data)
                if wire > WIRE_BYTES:
                    return body
        except h11.RemoteProtocolError as error:
            ended = "peer closed" in str(error)
            raise BodyError("unexpected EOF" if ended else "malformed chunked encoding") from error
        if not isinstance(event, h11.Data):
            break
        body += event.data
        if len(body) >= most:
            break
    return body[:most]


def malformed(message: str) -> str:
    """Put h11's words for a head that is not HTTP into Go's."""
    found = _QUOTED.search(message)
    if found is None or "header line" not in message:
        return message
    line = ast.literal_eval(found.group()).decode(errors="replace")
    return f"malformed MIME header line: {line}"


# -- the connection -----------------------------------------------------------------------------------------------
class _Connection(asyncio.BufferedProtocol):
    """Received bytes of a connection, one read at a time: the next read starts when they are consumed."""

    def __init__(self) -> None:
        self.received = 0
        self._buffer = memoryview(bytearray(READ_BYTES))  # asyncio's TLS takes slices of it
        self._data = b""
        self._ended = False
        self._error: Exception | None = None
        self._waiting: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += 1
        self._data += self._buffer[:nbytes]
        self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self._error = True, exc
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def read(self) -> bytes:
        """Return what came, nothing at the end. Raise OSError."""
        if not self._data and not self._ended:
            self._waiting = asyncio.get_running_loop().create_future()
            self.transport.resume_reading()
            await self._waiting
        if not self._data and self._error is not None:
            raise self._error
        data, self._data = self._data, b""
        return data

    def close(self, below: asyncio.Transport, *, whole: bool) -> None:
        """Close the connection: in order where the answer was read as a whole, for the server's log says otherwise."""
        if not whole or self.transport.get_write_buffer_size() or below.get_write_buffer_size():
            below.abort()
            return
        self.transport.close()
        below.close()  # TLS would wait for the other side's end, half a minute


async def _connect(
    host: str, port: int, owner: Owner, tls: ssl.SSLContext | None
) -> tuple[_Connection, asyncio.Transport]:
    """Connect to a host, and see TLS through its handshake; return the connection and the transport that is below TLS."""

    def made() -> asyncio.BaseProtocol:
        connection = _Connection()
        if tls is None:
            return connection
        return Records(connection, tls, server_side=False, server_hostname=host.partition("%")[0])

    try:
        transport, protocol = await host_lookups.dial(made, host, port, owner)
    except (OSError, UnicodeError) as error:
        raise ConnectError(error) from error
    if isinstance(protocol, _Connection):
        return protocol, transport
    records = cast(Records, protocol)
    try:
        if records.done is None:
            raise EOFError("EOF")
        await records.done
    except ConnectionResetError as error:  # asyncio's word for an end in the midst of a handshake
        transport.abort()
        raise EOFError("EOF") from error
    except BaseException:
        transport.abort()
        raise
    return cast(_Connection, records.protocol), transport
