"""Pipelines of HTTP requests for a gateway, with the requests that backends may see of them and the responses that clients get.

The model knows of each request whether the gateway forwards it, answers it or closes the connection, from the rules of HTTP and
not from the gateway's code.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from dataclasses import dataclass, field

INNER = b"GET /smuggled HTTP/1.1\r\nHost: internal\r\n\r\n"
LAST = b"x-last: yes\r\n\r\n"
"""Ends what each client sends."""
FORWARDED = ("/web", "/socket")
_STATUSES = {"/web": 200, "/none": 404, "/absent": 503}
_LINE = re.compile(r"([A-Z]+) (/(?:web|socket)/(\d+)\.(\d+)) HTTP/1\.1")


@dataclass(frozen=True)
class Message:
    """A request. `body` is sent with a length, or in chunks, if it is not None."""

    method: str = "GET"
    path: str = "/web"
    version: str = "1.1"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    chunked: bool = False

    def written(self, name: str) -> bytes:
        """Return its bytes; `name` distinguishes it from all others."""
        target = "a:80" if self.method == "CONNECT" else f"{self.path}/{name}"
        lines = [f"{self.method} {target} HTTP/{self.version}", *map(": ".join, self.headers)]
        body = self.body
        if body is None:
            return "\r\n".join([*lines, "", ""]).encode()
        lines.append("Transfer-Encoding: chunked" if self.chunked else f"Content-Length: {len(body)}")
        if self.chunked:
            parts = [body[: len(body) // 2], body[len(body) // 2 :]]
            body = b"".join(b"%x;a=b\r\n%b\r\n" % (len(part), part) for part in parts if part) + b"0\r\nX-A: b\r\n\r\n"
        return "\r\n".join([*lines, "", ""]).encode() + body

    def _options(self, *names: str) -> set[str]:
        values = [value for name, value in self.headers if name.lower() in names]
        return {option.strip().lower() for value in values for option in value.split(",")}

    @property
    def ends_http(self) -> bool:
        """True if nothing behind it is a request."""
        if self.method == "CONNECT":
            return True
        return "upgrade" in self._options("connection", "proxy-connection") and bool(self._options("upgrade"))

    @property
    def malformed(self) -> bool:
        """True if it is no request: the connection is closed, maybe before responses to earlier requests."""
        names = [name for name, _ in self.headers]
        return "X(A)" in names or (self.ends_http and bool(self.body or (self.body is not None and self.chunked)))

    @property
    def status(self) -> int:
        """The status of the response."""
        if self.method == "CONNECT":
            return 405
        if "Host" not in dict(self.headers) and self.version == "1.1":
            return 400
        if self.version == "1.0" and self.body is not None and self.chunked:
            return 400
        protocols = [value.lower() for name, value in self.headers if name == "Upgrade"]
        websocket = self.method == "GET" and self.version == "1.1" and protocols == ["websocket"]
        if self.path == "/socket":
            return 101 if websocket and "upgrade" in self._options("connection") else 200
        return _STATUSES[self.path]

    @property
    def forwarded(self) -> bool:
        """True if the backend gets it."""
        return self.status in (101, 200)

    @property
    def is_last(self) -> bool:
        """True if the connection is closed after its response, or is a tunnel."""
        closes = self.version == "1.0" or "close" in self._options("connection")
        return self.ends_http or closes or self.status in (400, 405)

    @property
    def may_be_last(self) -> bool:
        """True if the connection is closed unless all of the body has come before the response."""
        return self.is_last or (not self.forwarded and self.body is not None)


@dataclass
class Seen:
    """A request that a backend has parsed."""

    method: str
    path: str
    body: bytes


@dataclass
class StrictBackend:
    """Parses requests, and responds in several forms to those of pipelines, which it records by client and place."""

    seen: dict[int, list[tuple[int, Seen]]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    port: int = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until it ends."""
        with contextlib.suppress(ConnectionError):
            try:
                while await self._respond(reader, writer):
                    await writer.drain()
            except asyncio.IncompleteReadError as error:
                if error.partial:
                    self.faults.append(f"incomplete request {error.partial!r}")
            except ValueError as error:
                self.faults.append(str(error))
        writer.close()

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n"))[:-4].decode()
        line, *lines = head.split("\r\n")
        found = _LINE.fullmatch(line)
        headers = dict(each.partition(": ")[::2] for each in lines)
        if found is None or len(headers) != len(lines):
            raise ValueError(f"unexpected head {head!r}")
        method, path, client, number = found[1], found[2], int(found[3]), int(found[4])
        seen = Seen(method, path, await _body(headers, reader))
        self.seen.setdefault(client, []).append((number, seen))
        await asyncio.sleep(0.001 * (number % 2))
        if path.startswith("/socket") and "upgrade" in headers:
            writer.write(b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
            await _echo(reader, writer)
            return False
        writer.write(_response(method, path, number))
        return number % 5 != 4


async def _body(headers: dict[str, str], reader: asyncio.StreamReader) -> bytes:
    if "transfer-encoding" not in headers:
        return await reader.readexactly(int(headers.get("content-length", "0")))
    if headers["transfer-encoding"] != "chunked" or "content-length" in headers:
        raise ValueError(f"ambiguous length: {headers}")
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += await reader.readexactly(size)
        if await reader.readexactly(2) != b"\r\n":
            raise ValueError("a chunk without an end")
    if await reader.readexactly(2) != b"\r\n":
        raise ValueError("trailers")
    return body


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    data = b""
    while not data.endswith(LAST) and (part := await reader.read(1 << 16)):
        data += part
        writer.write(part)


def _response(method: str, path: str, number: int) -> bytes:
    body = path.encode()
    if method == "HEAD":
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nx-path: %b\r\n\r\n" % (len(body), body)
    if number % 5 == 1:
        return (
            b"HTTP/1.1 200 OK\r\nx-path: %b\r\ntransfer-encoding: chunked\r\n\r\n3\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n"
            % (
                body,
                body[:3],
                len(body) - 3,
                body[3:],
            )
        )
    closes = b"connection: close\r\n" if number % 5 == 4 else b""
    early = b"HTTP/1.1 100 Continue\r\n\r\n" if number % 5 == 2 else b""
    return early + b"HTTP/1.1 200 OK\r\nx-path: %b\r\n%bcontent-length: %d\r\n\r\n%b" % (
        body,
        closes,
        len(body),
        body,
    )


@dataclass
class Answer:
    """A response as its client has read it; `body` of a 101 is all that followed."""

    status: int
    path: str
    body: bytes


def answers(data: bytes, methods: list[str]) -> list[Answer]:
    """Parse the responses to requests with these methods; ValueError if there is anything else, or one is incomplete."""
    found: list[Answer] = []
    while data:
        head, end, rest = data.partition(b"\r\n\r\n")
        line, *lines = head.decode().split("\r\n")
        headers = dict(each.split(": ", 1) for each in lines)
        status = re.fullmatch(r"HTTP/1\.1 (\d{3}) .*", line)
        if not end or status is None or len(headers) != len(lines) or len(found) == len(methods):
            raise ValueError(f"unexpected response {data!r} after {found}")
        data = rest
        if status[1] == "100":
            continue
        if status[1] == "101":
            return [*found, Answer(101, "", data)]
        body, data = (b"", data) if methods[len(found)] == "HEAD" else _cut(headers, data)
        found.append(Answer(int(status[1]), headers.get("x-path", ""), body))
    return found


def _cut(headers: dict[str, str], data: bytes) -> tuple[bytes, bytes]:
    """Return the body at the beginning of data, and what follows it."""
    if "content-length" in headers:
        length = int(headers["content-length"])
        if len(data) < length:
            raise ValueError(f"incomplete body {data!r}")
        return data[:length], data[length:]
    if headers.get("transfer-encoding") != "chunked":
        return data, b""
    body = b""
    while True:
        size, end, data = data.partition(b"\r\n")
        length = int(size, 16)
        if not end or data[length : length + 2] != b"\r\n":
            raise ValueError(f"incomplete chunk {data!r}")
        body, data = body + data[:length], data[length + 2 :]
        if not length:
            return body, data


async def exchange(address: str, port: int, pieces: list[bytes]) -> bytes:
    """Send pieces and return all that comes until the connection is closed."""
    loop = asyncio.get_running_loop()
    received = b""
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, (address, port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        async def send() -> None:
            with contextlib.suppress(ConnectionError):
                for number, piece in enumerate(pieces):
                    await asyncio.sleep(0.001 if number else 0)
                    await loop.sock_sendall(client, piece)

        sending = asyncio.create_task(send())
        try:
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(10):
                    while part := await loop.sock_recv(client, 1 << 16):
                        received += part
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    return received
