"""TLS records that bring no application data: a connection ends after a few in a row, and ordinary ones are served."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from uvicorn.config import Config

from control.http.protocol import ApiProtocol
from kube import pki, tls_records
from kube.serving.limits import ServingLimits
from kube.serving.server import BoundedServer
from tests.support.tls13 import DATA, Sender

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Application:
    """Answers with the length of the body, once it may go on."""

    def __init__(self) -> None:
        self.go_on, self.received = asyncio.Event(), asyncio.Event()
        self.go_on.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.received.set()
        await self.go_on.wait()
        size, more = 0, True
        while more:
            event = await receive()
            size, more = size + len(event.get("body", b"")), event.get("more_body", False)
        body = b"<%d>" % size
        head = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def application() -> Application:
    return Application()


@pytest.fixture
async def address(tmp_path: Path, application: Application) -> AsyncIterator[tuple[str, int]]:
    now = datetime.now(UTC)
    pki.issue(pki.new_ca("test", now), "server", usages=(pki.SERVER,), sans=["127.0.0.1"], now=now).save(
        tmp_path, "server"
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    listening = socket.create_server(("127.0.0.1", 0))
    config = Config(application, http=ApiProtocol, interface="asgi3", ws="none", lifespan="off")
    config.load()
    server = BoundedServer(config, ServingLimits(), lambda: tls)
    await server.startup([listening])
    try:
        async with asyncio.timeout(120):
            yield listening.getsockname()
    finally:
        for acceptor in server.servers:
            acceptor.close()
            await acceptor.wait_closed()


class Client:
    """Sends records of its own making, and reads answers."""

    def __init__(self, key_log: Path) -> None:
        self._incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.keylog_filename = str(key_log)
        self._tls, self._outgoing, self._log = context.wrap_bio(self._incoming, outgoing), outgoing, key_log

    async def connect(self, address: tuple[str, int]) -> None:
        """Connect, and hold back what ends the handshake: it goes with the first bytes that are sent."""
        self.reader, self.writer = await asyncio.open_connection(*address)
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                self._tls.do_handshake()
                break
            self.writer.write(self._outgoing.read())
            self._incoming.write(await self.reader.read(65536))
        cipher = self._tls.cipher()
        assert cipher is not None
        self.sender = Sender(self._log, "CLIENT_TRAFFIC_SECRET_0", cipher[0])

    async def send(self, *records: bytes, at_once: bool = True) -> None:
        self.writer.write(self._outgoing.read() + (b"".join(records) if at_once else b""))
        for record in () if at_once else records:
            if self.writer.is_closing():
                return
            self.writer.write(record)
            await asyncio.sleep(0.001)

    def data(self, content: bytes, each: int = 1 << 14) -> list[bytes]:
        return [self.sender.record(DATA, content[start : start + each]) for start in range(0, len(content), each)]

    def key_updates(self, count: int, padding: int = 0) -> list[bytes]:
        return [self.sender.key_update(padding) for _ in range(count)]

    async def answer(self, count: int = 1) -> bytes:
        """Read answers; return the last one's body, or nothing where the connection has ended."""
        read = b""
        while read.count(b">") < count:
            try:
                data = await self.reader.read(65536)
            except ConnectionError:
                return b""
            if not data:
                return b""
            self._incoming.write(data)
            with contextlib.suppress(ssl.SSLWantReadError):
                while True:
                    read += self._tls.read(65536)
        return read.rpartition(b"\r\n\r\n")[2]


@pytest.fixture
async def client(tmp_path: Path, address: tuple[str, int]) -> AsyncIterator[Client]:
    client = Client(tmp_path / "keys")
    await client.connect(address)
    yield client
    client.writer.transport.abort()


@pytest.mark.parametrize("padding", [0, 100, 5000])
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_connection_that_only_changes_its_key_is_ended(client: Client, padding: int, at_once: bool) -> None:
    with contextlib.suppress(ConnectionError):
        await client.send(*client.key_updates(100, padding), at_once=at_once)
    assert await client.answer() == b""


async def test_what_comes_with_the_handshakes_end_is_held_to_the_limit(client: Client) -> None:
    await client.send(*client.key_updates(3 * tls_records.MOST), *client.data(GET))
    assert await client.answer() == b""


async def test_few_records_are_decrypted_of_a_flood(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = list[int]()
    real = tls_records.Records._check
    monkeypatch.setattr(tls_records.Records, "_check", lambda self: (checks.append(self._count), real(self))[1])
    await client.send(*client.data(GET))
    assert await client.answer() == b"<0>"
    await client.send(*client.key_updates(5000))
    assert await client.answer() == b""
    assert max(checks) <= 2 * tls_records.MOST


async def test_a_key_may_be_changed_between_requests_as_often_as_there_are_requests(client: Client) -> None:
    for _ in range(20):
        await client.send(*client.key_updates(tls_records.MOST // 2), *client.data(GET), *client.key_updates(10))
        assert await client.answer() == b"<0>"


async def test_requests_of_many_small_records_are_served(client: Client) -> None:
    for at_once in (True, False):
        await client.send(*client.data(GET, 1), at_once=at_once)
        assert await client.answer() == b"<0>"
    post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" + b"a" * 300000
    for each in (1400, 100, 1 << 14):
        await client.send(*client.data(post, each))
        assert await client.answer() == b"<300000>"


async def test_records_are_found_however_they_are_cut(client: Client) -> None:
    post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3000\r\n\r\n" + b"a" * 3000
    chosen = random.Random(7)
    for _ in range(5):
        stream = b"".join(
            record for each in (1, 700, 30) for record in (*client.data(post, each), *client.key_updates(3))
        )
        cuts = sorted(chosen.sample(range(len(stream)), 150))
        await client.send(*(stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)), at_once=False)
        assert await client.answer(3) == b"<3000>"


async def test_records_wait_while_a_request_is_not_read(client: Client, application: Application) -> None:
    application.go_on.clear()
    post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n" + b"a" * 90000
    await client.send(*client.data(post[:80000]))
    await application.received.wait()
    await client.send(*client.data(post[80000:], 10))
    await asyncio.sleep(0.1)
    application.go_on.set()
    assert await client.answer() == b"<90000>"
    await client.send(*client.data(GET))
    assert await client.answer() == b"<0>"


async def test_a_flood_that_comes_while_a_request_is_not_read_is_not_decrypted_at_once(
    client: Client, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = list[int]()
    real = tls_records.Records._hold
    monkeypatch.setattr(
        tls_records.Records, "_hold", lambda self, data: (held.append(self._count), real(self, data))[1]
    )
    application.go_on.clear()
    await client.send(*client.data(GET + GET))  # the second waits for the first, and nothing else is read
    await application.received.wait()
    await client.send(*client.key_updates(5000))
    while not held:
        await asyncio.sleep(0.01)
    assert held[0] <= tls_records.WAITING + tls_records.MOST
    application.go_on.set()
    assert await client.answer() in (b"", b"<0>")
    while await client.answer():
        pass
