"""One GET request over HTTP/1.1 to a container, for probes and hooks.

Whoever answers is not trusted: without limits on what is read at once, and on what is read without giving anything, one pod's
server occupies the event loop for all. A read is of `READ_BYTES`; an answer's head has `HEAD_BYTES` in `HEAD_LINES` (those of
informational answers before it, five at most, count as well; Go's transport takes 1 MiB), and of its body `body_bytes` are
read, in `http_response.PIECES` at most. The connection is then closed; none is used twice. Certificates are what the caller's
`tls` checks. What fails has the words of Go's client, for users know and search for those.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from dataclasses import dataclass
from typing import cast

from agent import host_lookups
from agent.http_request import Request
from agent.http_response import BROKEN, Body, BodyError, ResponseError, headers_of, status_of
from agent.threads import Owner
from kube.client_handshakes import ClientHandshake
from kube.loop_timeout import LoopTimeout

READ_BYTES = 16 << 10
HEAD_BYTES, HEAD_LINES = 64 << 10, 256
INFORMATIONAL = 5
"""As Go's transport had it (max1xxResponses), which now counts their bytes alone."""
WIRE_BYTES = 64 << 10
"""Bytes that are read of a body at most, with its chunks' lengths and extensions and its trailers."""
AWAITING_HEADERS = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
READING_BODY = "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
_END_OF_HEAD = re.compile(rb"\n\r?\n")


class BodyTimeoutError(TimeoutError):
    """The head came in time, and the body did not."""


class ConnectError(Exception):
    """The connection failed with `error`: an OSError, or a UnicodeError of an invalid name."""

    def __init__(self, error: OSError | UnicodeError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class Response:
    """The received part of a response."""

    status: int
    location: bytes = b""
    body: bytes = b""


async def get(request: Request, owner: Owner, tls: ssl.SSLContext, limit: LoopTimeout, body_bytes: int) -> Response:
    """Send a request, for a pod, and read its answer within a timeout.

    Raise TimeoutError, ConnectError, EOFError for no answer at all, other OSErrors (ssl.SSLError too) and ResponseError.
    """
    late, opened, whole = AWAITING_HEADERS, None, False
    try:
        async with limit:
            opened = connection, _ = await _connect(
                request.host, request.port, owner, tls if request.scheme == "https" else None
            )
            connection.transport.write(request.head)
            status, head, rest = await _head(connection)
            if status == 101:
                return Response(status)
            headers = headers_of(head)
            body = Body(status, headers, body_bytes)
            late = READING_BODY
            if body_bytes:
                await _read_body(connection, body, rest)
            whole = not body_bytes or body.done
            return Response(status, headers.get(b"location", [b""])[0], body.content)
    except TimeoutError as error:
        if error.errno is not None:  # the kernel's ETIMEDOUT
            raise ResponseError(os.strerror(error.errno).lower()) from error
        raise (TimeoutError if late is AWAITING_HEADERS else BodyTimeoutError)(late) from error
    finally:
        if opened is not None:
            opened[0].close(opened[1], whole=whole)


# -- the answer ---------------------------------------------------------------------------------------------------
async def _head(connection: _Connection) -> tuple[int, bytes, bytes]:
    """Read until the end of the answer's head; return its status, the head, and what came after it."""
    read = bytearray()
    left, lines, informational = HEAD_BYTES, HEAD_LINES, 0
    while True:
        searched, checked, breaks = 0, False, read.count(b"\n")
        while not (found := _END_OF_HEAD.search(read, searched)):
            searched = max(0, len(read) - 2)
            if breaks and not checked:
                status_of(bytes(read[: read.find(b"\n")]))
                checked = True
            if len(read) > left:
                raise ResponseError(f"net/http: server response headers exceeded {HEAD_BYTES} bytes; aborted")
            if breaks > lines:
                raise ResponseError(f"net/http: server response headers exceeded {HEAD_LINES} lines; aborted")
            data = await connection.read()
            if not data:
                if read:
                    raise ResponseError(f"{BROKEN}unexpected EOF")
                raise EOFError("EOF")
            read += data
            breaks += data.count(b"\n")
        head = bytes(read[: found.end()])
        del read[: found.end()]
        status = status_of(head.partition(b"\n")[0])
        left -= len(head)
        lines -= head.count(b"\n")
        if left < 0:
            raise ResponseError(f"net/http: server response headers exceeded {HEAD_BYTES} bytes; aborted")
        if lines < 0:
            raise ResponseError(f"net/http: server response headers exceeded {HEAD_LINES} lines; aborted")
        if status == 101 or not 100 <= status < 200:
            return status, head, bytes(read)
        headers_of(head)
        informational += 1
        if informational > INFORMATIONAL:
            raise ResponseError("net/http: too many 1xx informational responses")


async def _read_body(connection: _Connection, body: Body, data: bytes) -> None:
    """Read a body to its end, or as much of it as is wanted; `data` came with the head."""
    wire = len(data)
    body.feed(data)
    while not body.suffices:
        if wire > WIRE_BYTES:
            raise BodyError("chunked encoding contains too much non-data")
        data = await connection.read()
        if not data:
            body.end()
            return
        wire += len(data)
        body.feed(data)


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
        return ClientHandshake(connection, tls, host.partition("%")[0], owner.namespace or owner.pod)

    try:
        transport, protocol = await host_lookups.dial(made, host, port, owner)
    except (OSError, UnicodeError) as error:
        raise ConnectError(error) from error
    if isinstance(protocol, _Connection):
        return protocol, transport
    shake = cast(ClientHandshake, protocol)
    try:
        await shake.finish(transport)
    except ConnectionResetError as error:  # asyncio's word for an end in the midst of a handshake
        raise EOFError("EOF") from error
    return cast(_Connection, shake.records.protocol), transport
