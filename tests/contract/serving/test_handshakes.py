"""TLS handshakes: a few are begun in a round of the event loop, addresses in turn; hundreds of clients may wait for theirs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from uvicorn.config import Config

from control.server.protocol import ApiProtocol
from kube import pki
from kube.serving.limits import ServingLimits
from kube.serving.server import BoundedServer
from kube.serving.turns import ROUND
from tests.support.slow_clients import client_hello

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class Begun(ApiProtocol):
    """Notes whose connections are begun."""

    peers: list[str]

    def admitted(self, connection: Any, *rest: Any) -> None:
        super().admitted(connection, *rest)
        self.peers.append(connection.peer)


@pytest.fixture
def contexts(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return a server's settings and those of a client with a certificate."""
    now = datetime.now(UTC)
    authority = pki.new_ca("test", now)
    (tmp_path / "ca.crt").write_bytes(authority.cert_pem)
    for name, usages in (("server", (pki.SERVER,)), ("client", (pki.CLIENT,))):
        pki.issue(authority, name, usages=usages, sans=["127.0.0.1"], now=now).save(tmp_path, name)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    server.load_verify_locations(tmp_path / "ca.crt")
    server.verify_mode = ssl.CERT_OPTIONAL
    client = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    client.load_cert_chain(tmp_path / "client.crt", tmp_path / "client.key")
    return server, client


@contextlib.asynccontextmanager
async def serving(tls: ssl.SSLContext, listening: socket.socket, **limits: Any) -> AsyncIterator[list[str]]:
    """Serve; yields the addresses whose handshakes have been begun, in their order."""
    peers = list[str]()
    config = Config(
        application, http=type("Counted", (Begun,), {"peers": peers}), interface="asgi3", ws="none", lifespan="off"
    )
    config.load()
    server = BoundedServer(config, ServingLimits(**limits), lambda: tls)
    await server.startup([listening])
    try:
        yield peers
    finally:
        for acceptor in server.servers:
            acceptor.close()
            await acceptor.wait_closed()


@pytest.fixture
def hellos() -> Iterator[Callable[[Sequence[str]], socket.socket]]:
    """Return a socket on which connections wait from these addresses, each with a handshake's first message."""
    made = list[socket.socket]()

    def connected(addresses: Sequence[str]) -> socket.socket:
        listening = socket.create_server(("127.0.0.1", 0), backlog=1000)
        hello = client_hello()
        for address in addresses:
            made.append(socket.create_connection(listening.getsockname(), source_address=(address, 0)))
            made[-1].sendall(hello)
        return listening

    yield connected
    for each in made:
        each.close()


async def test_few_handshakes_are_begun_in_a_round_of_the_loop(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], hellos: Callable[[Sequence[str]], socket.socket]
) -> None:
    async with serving(contexts[0], hellos(["127.0.0.1"] * 50)) as begun:
        rounds = list[int]()
        while len(begun) < 50:
            before = len(begun)
            await asyncio.sleep(0)
            rounds.append(len(begun) - before)
        assert max(rounds) == ROUND


async def test_an_address_that_sends_one_does_not_wait_behind_all_of_another(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], hellos: Callable[[Sequence[str]], socket.socket]
) -> None:
    async with serving(contexts[0], hellos([*["127.0.0.1"] * 100, "127.0.0.2"])) as begun:
        while len(begun) < 101:
            await asyncio.sleep(0)
        assert begun.index("127.0.0.2") < 50


async def test_hundreds_of_clients_that_connect_at_the_same_moment_from_one_address_are_all_served(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    listening = socket.create_server(("127.0.0.1", 0))

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection(*listening.getsockname(), ssl=contexts[1])
        writer.write(REQUEST)
        try:
            return await reader.readline()
        finally:
            writer.transport.abort()

    async with serving(contexts[0], listening), asyncio.timeout(120):
        answers = await asyncio.gather(*(ask() for _ in range(300)), return_exceptions=True)
        assert [each for each in answers if each != OK] == []
