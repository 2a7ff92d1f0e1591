"""The limits of listening sockets, on real ones: heads, time, bodies, connections, and clients that do not read.

Each is tested with the protocol of the API server and with the kubelet's, over TLS and without, on asyncio's loop and uvloop's.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from uvicorn.config import Config

from agent.server.protocol import AgentProtocol
from control.http.protocol import CYCLE, PROTOCOL, ApiProtocol
from kube import pki
from kube.serving.limits import ServingLimits
from kube.serving.protocol import BoundedProtocol
from kube.serving.server import BoundedServer
from tests.support.slow_clients import RawClient, client_hello, closed, silent

App = Callable[[Any, Any, Any], Awaitable[None]]
LARGE = b"x" * (16 << 20)
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


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
            await asyncio.sleep(0.05)
            assert len(server.table) == 0
            assert server.table.held == 0

    async def connect(self, port: int, data: bytes = b"") -> RawClient:
        return await RawClient.connect(port, self.client_tls, data)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer `/large` with 16 MiB, anything else with "ok", after the body was read."""
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
        if isinstance(protocol, ApiProtocol):
            await protocol.respond_in_pieces(cycle, 200, headers, found)
            return
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": found})


@pytest.fixture(params=["api tls", "kubelet tls", "health"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    protocols = {"api": ApiProtocol, "kubelet": AgentProtocol, "health": BoundedProtocol}
    protocol = protocols[request.param.split()[0]]
    if "tls" not in request.param:
        return Site(protocol, None, None, None)
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
    certified = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    certified.load_cert_chain(tmp_path / "client.crt", tmp_path / "client.key")
    return Site(protocol, server, client, certified)


async def answered(client: RawClient, request: bytes = GET) -> bytes:
    """Send a request and return its answer's status line; b"" where the connection is closed."""
    await client.send(request)
    try:
        head = await client.head()
    except (asyncio.IncompleteReadError, OSError):
        return b""
    await client.reader.readexactly(2)
    return head.split(b"\r\n", 1)[0]


# -- heads ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 6000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 60 + b"\r\n", b"431"),
        (b"GET /" + b"x" * 3000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET /?" + b"x" * 3000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\nno header\r\n\r\n", b"400"),
    ],
    ids=["bytes", "headers", "path", "query", "no request"],
)
async def test_a_head_over_a_limit_is_refused_and_the_connection_closed(site: Site, head: bytes, status: bytes) -> None:
    async with site.serving(head_bytes=4096, line_bytes=2048, headers=50) as (port, _):
        client = await site.connect(port, head)
        answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 " + status + b" "), answer[:100]
        assert b"\r\nconnection: close\r\n" in answer
        assert site.bodies == []


async def test_a_head_that_comes_in_many_parts_is_refused_when_it_is_too_large(site: Site) -> None:
    async with site.serving(head_bytes=4096) as (port, _):
        client = await site.connect(port, b"GET / HTTP/1.1\r\nA: ")
        for _ in range(80):
            await client.send(b"x" * 100)
            await asyncio.sleep(0)
        assert (await client.rest()).startswith(b"HTTP/1.1 431 ")


async def test_a_head_within_the_limits_is_served(site: Site) -> None:
    async with site.serving(head_bytes=4096, line_bytes=2048, headers=50) as (port, _):
        client = await site.connect(port, b"GET /" + b"x" * 2000 + b" HTTP/1.1\r\n" + b"A: b\r\n" * 49 + b"\r\n")
        assert (await client.head()).startswith(b"HTTP/1.1 200 ")
        client.close()


async def test_large_heads_beyond_a_rate_are_read_later_and_small_ones_at_once(site: Site) -> None:
    large = GET[:-2] + b"A: " + b"x" * 2000 + b"\r\n\r\n"
    async with site.serving(large_head=1000, head_burst=0, head_rate=4000) as (port, server):
        client = await site.connect(port)
        assert await answered(client, large) == b"HTTP/1.1 200 OK"
        (waiting,) = server.server_state.connections
        assert isinstance(waiting, BoundedProtocol) and waiting._slowed is not None
        assert await answered(await site.connect(port)) == b"HTTP/1.1 200 OK"
        assert await answered(client, large) == b"HTTP/1.1 200 OK"


async def test_a_head_that_is_kept_back_is_charged_as_it_arrives(site: Site) -> None:
    part = GET[:-2] + b"A: " + b"x" * 2000
    async with site.serving(large_head=1000, head_burst=0, head_rate=4000) as (port, server):
        client = await site.connect(port, part)
        async with asyncio.timeout(5):
            while not any(isinstance(c, BoundedProtocol) and c._slowed for c in server.server_state.connections):
                await asyncio.sleep(0.01)
        assert await answered(client, b"\r\n\r\n") == b"HTTP/1.1 200 OK", "it is read when its sender may send more"


async def test_one_request_with_a_large_head_begins_in_an_iteration_of_the_event_loop(site: Site) -> None:
    begun, iterations = list[int](), 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.append(iterations)
        await site.app(scope, receive, send)

    large = GET[:-2] + b"A: " + b"x" * 2000 + b"\r\n\r\n"
    async with site.serving(app, large_head=1000) as (port, server):
        clients = [await site.connect(port) for _ in range(8)]
        await asyncio.gather(*(answered(client) for client in clients))

        async def count() -> None:
            nonlocal iterations
            while True:
                iterations += 1
                await asyncio.sleep(0)

        begun.clear()
        counting = asyncio.create_task(count())
        for connection in tuple(server.server_state.connections):
            connection.data_received(large)  # type: ignore[union-attr]
        for client in clients:
            assert (await client.head()).startswith(b"HTTP/1.1 200 ")
        counting.cancel()
    assert len(set(begun)) == len(begun) == 8


async def test_a_second_request_is_held_to_the_same_limits_as_the_first(site: Site) -> None:
    async with site.serving(headers=50) as (port, _):
        client = await site.connect(port)
        assert await answered(client) == b"HTTP/1.1 200 OK"
        await client.send(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 60 + b"\r\n")
        assert (await client.rest()).startswith(b"HTTP/1.1 431 ")


async def test_requests_that_pile_up_behind_one_close_the_connection(site: Site) -> None:
    async with site.serving(pipelined=8) as (port, server):
        client = await site.connect(port, GET * 50)
        assert b"HTTP/1.1 200" not in await client.rest()
        assert len(server.table) == 0


async def test_a_few_requests_may_be_sent_at_once(site: Site) -> None:
    async with site.serving(pipelined=8) as (port, _):
        client = await site.connect(port, GET * 8)
        for _ in range(8):
            assert (await client.head()).startswith(b"HTTP/1.1 200 ")
            await client.reader.readexactly(2)
        client.close()


# -- time -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "sent",
    [b"", b"GET", b"GET / HTTP/1.1\r\nA: b\r\n", b"\r\n", GET + b"GET", GET + b"\r\n"],
    ids=["nothing", "method", "headers", "empty line", "second head", "empty line behind an answer"],
)
async def test_a_head_that_does_not_come_in_time_ends_the_connection(site: Site, sent: bytes) -> None:
    async with site.serving(head_timeout=0.5) as (port, _):
        client = await site.connect(port)
        if sent.startswith(GET):
            assert await answered(client) == b"HTTP/1.1 200 OK"
            sent = sent.removeprefix(GET)
        start = time.monotonic()
        for _ in range(3):  # dribbling does not prolong it
            await client.send(sent)
            sent = b"\r\n" if sent == b"\r\n" else b""
            await asyncio.sleep(0.1)
        await client.rest()
        assert time.monotonic() - start < 10


async def test_a_connection_on_which_nothing_is_sent_is_closed(site: Site) -> None:
    async with site.serving(head_timeout=0.3) as (port, _):
        assert await asyncio.to_thread(closed, silent(port))


async def test_a_handshake_that_is_not_finished_is_closed(site: Site) -> None:
    if site.server_tls is None:
        return
    async with site.serving(head_timeout=0.3) as (port, _):
        client = silent(port)
        client.sendall(client_hello())
        assert await asyncio.to_thread(closed, client)


async def test_an_idle_connection_is_closed(site: Site) -> None:
    async with site.serving(idle_timeout=0.3) as (port, _):
        client = await site.connect(port)
        assert await answered(client) == b"HTTP/1.1 200 OK"
        assert await client.rest() == b""


async def test_a_connection_in_use_outlives_the_time_limit_of_a_head(site: Site) -> None:
    async with site.serving(head_timeout=0.3) as (port, _):
        client = await site.connect(port)
        for _ in range(6):
            assert await answered(client) == b"HTTP/1.1 200 OK"
            await asyncio.sleep(0.1)
        client.close()


# -- bodies -----------------------------------------------------------------------------------------------------------
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"


async def test_a_body_that_trickles_ends_the_connection(site: Site) -> None:
    async with site.serving(body_window=0.4, body_rate=1000) as (port, _):
        client = await site.connect(port, POST)
        waiting = asyncio.create_task(client.rest())
        while not waiting.done():
            await client.send(b"x")
            await asyncio.sleep(0.05)
        assert b"200" not in await waiting
        assert site.bodies == []


async def test_a_body_that_comes_steadily_is_read_to_its_end(site: Site) -> None:
    async with site.serving(body_window=0.3, body_rate=1000) as (port, _):
        client = await site.connect(port, POST)
        for _ in range(20):
            await client.send(b"x" * 5000)
            await asyncio.sleep(0.05)
        assert (await client.head()).startswith(b"HTTP/1.1 200 ")
        assert site.bodies == [b"x" * 100000]
        client.close()


async def test_a_body_that_nobody_reads_does_not_keep_the_connection(site: Site) -> None:
    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async with site.serving(refuse, body_window=0.3, idle_timeout=0.6) as (port, _):
        client = await site.connect(port, POST)
        waiting = asyncio.create_task(client.rest())
        while not waiting.done():
            await client.send(b"x")
            await asyncio.sleep(0.05)
        assert (await waiting).startswith(b"HTTP/1.1 401 ")


async def test_trailers_of_a_body_have_the_limit_of_a_head(site: Site) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nA: "
    async with site.serving(head_bytes=100_000) as (port, _):
        client = await site.connect(port, head)
        for _ in range(40):
            await client.send(b"x" * 10_000)
            await asyncio.sleep(0.01)
        assert b"200" not in await client.rest()
        assert site.bodies == []


async def test_a_body_in_small_chunks_is_read(site: Site) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with site.serving(head_bytes=1000) as (port, _):
        client = await site.connect(port, head)
        for _ in range(100):
            await client.send(b"1\r\nx\r\n" * 100)
        await client.send(b"0\r\n\r\n")
        assert (await client.head()).startswith(b"HTTP/1.1 200 ")
        assert site.bodies == [b"x" * 10_000]
        client.close()


async def test_a_body_that_goes_on_for_long_after_its_answer_ends_the_connection(site: Site) -> None:
    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async with site.serving(refuse) as (port, _):
        client = await site.connect(port, POST.replace(b"100000", b"100000000"))
        waiting = asyncio.create_task(client.rest())
        while not waiting.done():
            await client.send(b"x" * 10_000)
            await asyncio.sleep(0.05)
        assert (await waiting).startswith(b"HTTP/1.1 401 ")


# -- connections ------------------------------------------------------------------------------------------------------
async def test_one_address_has_a_limited_number_of_connections_of_nobody(site: Site) -> None:
    async with site.serving(unauthenticated_per_peer=8) as (port, server):
        clients = [await site.connect(port, b"GET") for _ in range(20)]
        await asyncio.sleep(0.1)
        assert len(server.table) == 8
        assert server.table.closed == 12
        assert sum(client.open for client in clients) == 8
        for client in clients:
            client.close()


async def test_connections_that_say_nothing_go_before_one_that_is_used(site: Site) -> None:
    async with site.serving(unauthenticated_per_peer=8) as (port, server):
        client = await site.connect(port, b"GET / HTTP/1.1\r\n")
        await asyncio.sleep(0.1)
        silents = [silent(port) for _ in range(50)]
        await asyncio.sleep(0.2)
        await client.send(b"\r\n")
        assert (await client.head()).startswith(b"HTTP/1.1 200 ")
        assert len(server.table) == 8
        client.close()
        for each in silents:
            each.close()


async def test_a_flood_does_not_close_connections_with_a_certificate(site: Site) -> None:
    if site.certified is None:
        return
    async with site.serving(unauthenticated_per_peer=8, unauthenticated=8, connections=16) as (port, server):
        mine = [await RawClient.connect(port, site.certified) for _ in range(4)]
        await asyncio.sleep(0.1)
        assert (server.table.authenticated, server.table.unauthenticated) == (4, 0)
        flood = [await site.connect(port, b"GET") for _ in range(40)]
        for client in mine:
            assert await answered(client) == b"HTTP/1.1 200 OK"
        late = await RawClient.connect(port, site.certified)
        assert await answered(late) == b"HTTP/1.1 200 OK"
        for client in (*mine, *flood, late):
            client.close()


async def test_a_process_out_of_descriptors_makes_room_and_goes_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from kube.serving import acceptor

    monkeypatch.setattr(acceptor, "PAUSE", 0.05)
    async with site.serving() as (port, server):
        old = await site.connect(port, b"GET")
        await asyncio.sleep(0.1)
        listening = server.servers[0]._listening
        failing = [OSError(24, "Too many open files")]

        class Full:
            def __getattr__(self, name: str) -> Any:
                return getattr(listening, name)

            def accept(self) -> Any:
                if failing:
                    raise failing.pop()
                return listening.accept()

        monkeypatch.setattr(server.servers[0], "_listening", Full())
        client = await site.connect(port)
        assert await answered(client) == b"HTTP/1.1 200 OK"
        assert await old.rest() == b""
        monkeypatch.undo()
        client.close()


# -- memory -----------------------------------------------------------------------------------------------------------
async def test_an_answer_that_is_not_read_ends_the_connection(site: Site) -> None:
    async with site.serving(send_timeout=0.4) as (port, server):
        clients = [await site.connect(port, GET.replace(b"/ ", b"/large ")) for _ in range(3)]
        for client in clients:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(0.2)
        assert len(server.table) == 3
        async with asyncio.timeout(20):
            while len(server.table):
                await asyncio.sleep(0.05)
        for client in clients:
            client.close()


async def test_the_kernel_keeps_little_of_an_answer_that_is_not_read(site: Site) -> None:
    async with site.serving(send_buffer=100_000) as (port, server):
        client = await site.connect(port, GET)
        await client.head()
        (connection,) = server.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert (
            accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 200_000
        )  # the kernel counts its own part, too
        client.close()


async def test_a_large_answer_is_read_whole_by_a_slow_client(site: Site) -> None:
    async with site.serving(send_timeout=1.0) as (port, _):
        client = await site.connect(port, GET.replace(b"/ ", b"/large "))
        await client.head()
        found = b""
        async with asyncio.timeout(60):
            while len(found) < len(LARGE):
                found += await client.reader.readexactly(1 << 20)
                await asyncio.sleep(0.1)
        assert found == LARGE
        assert await answered(client) == b"HTTP/1.1 200 OK"
        client.close()


async def test_heads_that_do_not_end_may_not_hold_more_than_the_limit_in_all(site: Site) -> None:
    async with site.serving(heads_bytes=100_000) as (port, server):
        small = await site.connect(port, b"GET / HTTP/1.1\r\nA: b\r\n")
        clients = [await site.connect(port, b"GET / HTTP/1.1\r\nA: " + b"x" * 40_000) for _ in range(5)]
        await asyncio.sleep(0.2)
        assert server.table.held <= 100_000
        assert server.table.closed == 3
        await small.send(b"\r\n")
        assert (await small.head()).startswith(b"HTTP/1.1 200 ")
        for client in (small, *clients):
            client.close()


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\nA: ", GET, POST + b"x", GET.replace(b"/ ", b"/large ") * 20],
    ids=["head", "answered", "body", "piled up"],
)
async def test_a_connection_that_has_ended_leaves_nothing_for_the_garbage_collector(site: Site, sent: bytes) -> None:
    async with site.serving() as (port, server):
        gc.collect()
        gc.disable()
        try:
            clients = [await site.connect(port, sent) for _ in range(5)]
            await asyncio.sleep(0.1)
            protocols = [weakref.ref(each) for each in server.server_state.connections]
            assert len(protocols) == 5
            for client in clients:
                client.close()
            await asyncio.sleep(0.3)
            assert [each() for each in protocols] == [None] * 5
        finally:
            gc.enable()
