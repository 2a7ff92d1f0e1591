"""Servers with the protocols of the API server and the kubelet, over TLS and without, and requests to them."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from uvicorn.config import Config

from control.http.protocol import CYCLE, PROTOCOL, ApiProtocol
from kube import pki
from kube.serving.limits import ServingLimits
from kube.serving.protocol import BoundedProtocol
from kube.serving.server import BoundedServer
from tests.support.hollow import eventually
from tests.support.slow_clients import RawClient

App = Callable[[Any, Any, Any], Awaitable[None]]
LARGE = b"x" * (16 << 20)
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"


def mutual_tls(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the TLS settings of a server and of a client with a certificate; the files are in the folder."""
    now = datetime.now(UTC)
    authority = pki.new_ca("test", now)
    (folder / "ca.crt").write_bytes(authority.cert_pem)
    for name, usages in (("server", (pki.SERVER,)), ("client", (pki.CLIENT,))):
        pki.issue(authority, name, usages=usages, sans=["127.0.0.1"], now=now).save(folder, name)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    server.load_verify_locations(folder / "ca.crt")
    server.verify_mode = ssl.CERT_OPTIONAL
    client = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    client.load_cert_chain(folder / "client.crt", folder / "client.key")
    return server, client


@dataclass
class Site:
    """Files and certificates of the tests' servers."""

    protocol: type[BoundedProtocol]
    server_tls: ssl.SSLContext | None
    client_tls: ssl.SSLContext | None
    certified: ssl.SSLContext | None
    """A client with a certificate."""
    bodies: list[bytes] = field(default_factory=list)

    @asynccontextmanager
    async def serving(self, app: App | None = None, **limits: Any) -> AsyncIterator[tuple[int, BoundedServer]]:
        config = Config(app or self.app, http=self.protocol, interface="asgi3", ws="none", lifespan="off")
        config.load()
        tls = self.server_tls
        server = BoundedServer(config, ServingLimits(**limits), None if tls is None else lambda: tls)
        listening = socket.create_server(("127.0.0.1", 0))
        await server.startup([listening])
        try:
            yield listening.getsockname()[1], server
        finally:
            for acceptor in server.servers:
                acceptor.close()
                await acceptor.wait_closed()
            for connection in tuple(server.server_state.connections):
                connection.abort()  # type: ignore[union-attr]
            for task in tuple(server.server_state.tasks):
                task.cancel()
            await eventually(lambda: len(server.table) == 0 and server.table.buffered_bytes == 0)

    async def connect(self, port: int, data: bytes = b"") -> RawClient:
        return await RawClient.connect(port, self.client_tls, data)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer `/large` with 16 MiB, anything else with "ok", after the body was read.

        `/invalid` has the characters of its query in the value of a header.
        """
        protocol, cycle = scope.pop(PROTOCOL, None), scope.pop(CYCLE, None)
        body, more = b"", True
        while more and scope["method"] == "POST":
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append(body)
        found = LARGE if scope["path"] == "/large" else b"ok"
        headers = [(b"content-length", str(len(found)).encode())]
        if scope["path"] == "/invalid":
            headers.append((b"x-a", b"1" + unquote_to_bytes(scope["query_string"]) + b"x-b: 2"))
        if isinstance(protocol, ApiProtocol):
            await protocol.respond_in_pieces(cycle, 200, headers, found)
            return
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": found})


async def answered(client: RawClient, request: bytes = GET) -> bytes:
    """Send a request and return its answer's status line; b"" if the connection is closed."""
    await client.send(request)
    try:
        head = await client.head()
    except (asyncio.IncompleteReadError, OSError):
        return b""
    await client.reader.readexactly(2)
    return head.split(b"\r\n", 1)[0]
