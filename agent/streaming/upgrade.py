"""Dials the runtime's streaming server and upgrades the connection; copies bytes between two upgraded connections.

Only a 101 answer switches to raw bytes (CVE-2018-1002105): any other answer is relayed as an ordinary response, and both
connections are closed after it.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from agent.streaming.directions import run_until_first_ends
from kube import client_handshakes, tls_settings

_MAX_HEAD = 64 << 10
_CHUNK = 64 << 10


@dataclass(slots=True)
class Stream:
    """The two halves of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def close(self) -> None:
        """Close, giving what was written five seconds to leave."""
        self.writer.close()
        try:
            async with asyncio.timeout(5):
                await self.writer.wait_closed()
        except TimeoutError:
            self.writer.transport.abort()
        except OSError:
            pass  # it was lost; asyncio's TLS transports cannot be aborted any more
        except BaseException:
            self.writer.transport.abort()
            raise


@dataclass(frozen=True, slots=True)
class Head:
    """The first line and headers of an answer; names in lower case."""

    status: int
    reason: str
    headers: Mapping[str, str]
    raw: bytes


class UpgradeError(Exception):
    """The server did not switch protocols; `head` and `body` are its answer."""

    def __init__(self, head: Head, body: bytes) -> None:
        super().__init__(f"{head.status} {head.reason}: {body.decode(errors='replace').strip()}")
        self.head = head
        self.body = body


Dial = Callable[[str, Iterable[tuple[str, str]]], Awaitable[tuple[Stream, Head]]]
"""Sends a request with a method and headers, and returns the stream after a 101. Raises UpgradeError or OSError."""


async def dial(url: str, method: str, headers: Iterable[tuple[str, str]]) -> tuple[Stream, Head]:
    """Connect to an http:// URL, send the request, return the stream after a 101. Raise UpgradeError or OSError.

    The runtime's URL is on a loopback address or a unix socket's stand-in; https URLs are the runtime's own
    certificate, which is not verified, as with upstream's kubelet.
    """
    parts = urlsplit(url)
    context = tls_settings.unchecked() if parts.scheme == "https" else None
    port = parts.port or (443 if context else 80)
    if context is None:
        reader, writer = await asyncio.open_connection(parts.hostname, port, limit=_MAX_HEAD)
    else:
        reader, writer = await client_handshakes.open_connection(
            parts.hostname or "", port, context, "runtime", limit=_MAX_HEAD
        )
    stream = Stream(reader, writer)
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        lines = [f"{method} {target} HTTP/1.1", f"Host: {parts.netloc}"]
        lines += [f"{name}: {value}" for name, value in headers]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        head = await _read_head(reader)
        if head.status != 101:
            raise UpgradeError(head, await _read_body(reader, head))
        return stream, head
    except BaseException:
        await stream.close()
        raise


async def splice(one: Stream, other: Stream) -> None:
    """Copy in both directions until either end closes; then close both."""
    try:
        await run_until_first_ends(
            splice_out=_copy(one.reader, other.writer), splice_in=_copy(other.reader, one.writer)
        )
    finally:
        try:
            await other.close()
        finally:
            await one.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ssl.SSLError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()


async def _read_head(reader: asyncio.StreamReader) -> Head:
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ConnectionResetError("the streaming server closed the connection before answering") from error
    first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    _, status, *reason = first.split(" ", 2)
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return Head(int(status), reason[0] if reason else "", headers, raw)


async def _read_body(reader: asyncio.StreamReader, head: Head) -> bytes:
    """Read an error's text, which is short; a longer or slower one is cut."""
    length = min(int(head.headers.get("content-length", _MAX_HEAD)), _MAX_HEAD)
    body = b""
    with contextlib.suppress(TimeoutError, OSError):
        async with asyncio.timeout(5):
            while len(body) < length and (data := await reader.read(length - len(body))):
                body += data
    return body
