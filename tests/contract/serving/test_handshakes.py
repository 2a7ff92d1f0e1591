"""TLS handshakes: few are begun in a round of the event loop, and they are computed in threads; hundreds may wait."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from uvicorn.config import Config

from control.http.protocol import ApiProtocol
from kube.serving import handshakes, table
from kube.serving.fair_queue import PER_ITERATION, Slots
from kube.serving.limits import ServingLimits
from kube.serving.server import BoundedServer
from tests.contract.serving.sites import mutual_tls
from tests.support.slow_clients import client_hello

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class Begun(ApiProtocol):
    """Notes whose connections are begun."""

    peers: list[str]
    shaken: list[str]

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.shaken.append(transport.get_extra_info("ssl_object").version())

    def admitted(self, connection: Any, *rest: Any) -> None:
        super().admitted(connection, *rest)
        self.peers.append(connection.peer)


@pytest.fixture
def contexts(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return mutual_tls(tmp_path)


@contextlib.asynccontextmanager
async def serving(
    tls: ssl.SSLContext, listening: socket.socket, shaken: list[str] | None = None, **limits: Any
) -> AsyncIterator[list[str]]:
    """Serve; yields the addresses whose handshakes have been begun, in their order, and adds those done to `shaken`."""
    peers = list[str]()
    noted = {"peers": peers, "shaken": [] if shaken is None else shaken}
    config = Config(application, http=type("Counted", (Begun,), noted), interface="asgi3", ws="none", lifespan="off")
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


@pytest.fixture
def as_if_rounds_were_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a round is long, and the next has more turns."""
    monkeypatch.setattr(table, "HANDSHAKE_SHARE", math.inf)


@pytest.mark.usefixtures("as_if_rounds_were_short")
async def test_few_handshakes_are_begun_in_a_round_of_the_loop(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], hellos: Callable[[Sequence[str]], socket.socket]
) -> None:
    async with serving(contexts[0], hellos(["127.0.0.1"] * 50)) as begun:
        rounds = list[int]()
        while len(begun) < 50:
            before = len(begun)
            await asyncio.sleep(0)
            rounds.append(len(begun) - before)
        assert max(rounds) == PER_ITERATION


@pytest.mark.usefixtures("as_if_rounds_were_short")
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


class HalfDone:
    """A client that is ready to send what ends its handshake, and does not."""

    def __init__(self, tls: ssl.SSLContext, address: tuple[str, int]) -> None:
        self.incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self.incoming, self._outgoing, server_hostname="127.0.0.1")
        self.socket = socket.create_connection(address)
        self.socket.setblocking(False)
        self._continue()
        self.socket.sendall(self._outgoing.read())

    def _continue(self) -> None:
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()

    async def answered(self) -> None:
        """Read the server's answer, up to where it is the client's turn."""
        while not self._outgoing.pending:
            self.incoming.write(await asyncio.get_running_loop().sock_recv(self.socket, 65536))
            self._continue()

    def finish(self, start: int = 0, end: int | None = None) -> None:
        """Send what is held back, or a part of it."""
        if not start:
            self._held = self._outgoing.read()
        self.socket.sendall(self._held[start:end])


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2])
async def test_handshakes_are_computed_in_threads_a_few_at_a_time(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], newest: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's certificate with a large key takes milliseconds to check; other requests do not wait for it."""
    computing, at_a_time, compute = set[int](), list[int](), ssl.SSLObject.do_handshake

    def noted(tls: ssl.SSLObject) -> None:
        if not tls.server_side:
            return compute(tls)
        assert threading.current_thread() is not threading.main_thread()
        computing.add(threading.get_ident())
        at_a_time.append(len(computing))
        try:
            return compute(tls)
        finally:
            computing.discard(threading.get_ident())

    monkeypatch.setattr(ssl.SSLObject, "do_handshake", noted)
    listening, shaken = socket.create_server(("127.0.0.1", 0), backlog=1000), list[str]()
    contexts[1].maximum_version = newest
    async with serving(contexts[0], listening, shaken), asyncio.timeout(60):
        clients = [HalfDone(contexts[1], listening.getsockname()) for _ in range(50)]
        for client in clients:
            await client.answered()
        for client in clients:
            client.finish()
        while len(shaken) < 50:
            await asyncio.sleep(0)
        assert len(at_a_time) >= 100 and max(at_a_time) <= handshakes.THREADS
        for client in clients:
            client.socket.close()


async def test_of_an_address_handshakes_that_have_begun_come_first(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that continues its handshake does not wait for a flood of first messages from its address."""
    allowed, steps, compute = threading.Event(), list[ssl.SSLObject](), ssl.SSLObject.do_handshake
    asked, acquire = list[bool](), Slots.acquire

    def counted(tls: ssl.SSLObject) -> None:
        if tls.server_side:
            allowed.wait(60)
            steps.append(tls)
        return compute(tls)

    async def noted(slots: Slots, owner: str, *, ahead: bool = False) -> None:
        asked.append(ahead)
        await acquire(slots, owner, ahead=ahead)

    monkeypatch.setattr(ssl.SSLObject, "do_handshake", counted)
    monkeypatch.setattr(Slots, "acquire", noted)
    listening, shaken = socket.create_server(("127.0.0.1", 0), backlog=1000), list[str]()
    flood = list[socket.socket]()

    async def first_messages(count: int) -> None:
        hello = client_hello()
        for _ in range(count):
            flood.append(socket.create_connection(listening.getsockname()))
            flood[-1].sendall(hello)
        while asked.count(False) < 1 + len(flood):
            await asyncio.sleep(0)

    async with serving(contexts[0], listening, shaken), asyncio.timeout(60):
        allowed.set()
        client = HalfDone(contexts[1], listening.getsockname())
        await client.answered()
        allowed.clear()
        try:
            await first_messages(60)
            client.finish()
            while True not in asked:
                await asyncio.sleep(0)
            await first_messages(60)
            before = len(steps)
        finally:
            allowed.set()
        while not shaken:
            await asyncio.sleep(0)
        assert steps.index(steps[0], before) - before <= 2 * handshakes.QUEUED, "steps before the client's second"
        for each in (*flood, client.socket):
            each.close()


async def test_a_handshake_in_many_small_pieces_is_ended(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    listening, shaken = socket.create_server(("127.0.0.1", 0)), list[str]()
    async with serving(contexts[0], listening, shaken), asyncio.timeout(60):
        client = HalfDone(contexts[1], listening.getsockname())
        await client.answered()
        for start in range(0, 3000, 100):
            client.finish(start, start + 100)
            await asyncio.sleep(0.001)
        while not shaken:
            await asyncio.sleep(0)
        client.socket.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each step that waits for a thread: whether it comes before first messages."""
    found, acquire = list[bool](), Slots.acquire

    async def noted(slots: Slots, owner: str, *, ahead: bool = False) -> None:
        found.append(ahead)
        await acquire(slots, owner, ahead=ahead)

    monkeypatch.setattr(Slots, "acquire", noted)
    return found


async def test_parts_of_a_record_are_no_steps(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], asked: list[bool]
) -> None:
    """A client that sends a record byte by byte keeps no thread busy, and no other client waiting."""
    listening, shaken = socket.create_server(("127.0.0.1", 0)), list[str]()
    async with serving(contexts[0], listening, shaken), asyncio.timeout(60):
        client = HalfDone(contexts[1], listening.getsockname())
        await client.answered()
        assert asked == [False]
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(500):
            client.finish(start, start + 1)
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        assert len(asked) <= 2, "only the record that ends in these bytes (TLS 1.3: change_cipher_spec)"
        client.finish(500)
        while not shaken:
            await asyncio.sleep(0)
        client.socket.close()


async def test_a_few_steps_of_a_handshake_come_before_first_messages(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], asked: list[bool]
) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    async with serving(contexts[0], listening), asyncio.timeout(60):
        with socket.create_connection(listening.getsockname()) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for number, byte in enumerate(client_hello()[5:25], 1):
                client.sendall(bytes((22, 3, 1, 0, 1, byte)))  # a record of one byte
                while len(asked) < number:
                    await asyncio.sleep(0)
        assert asked == [False, *[True] * handshakes.AHEAD, *[False] * (19 - handshakes.AHEAD)]


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff\x01"])
async def test_what_is_no_tls_ends_the_connection_at_once(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], sent: bytes
) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    async with serving(contexts[0], listening, head_timeout=3600), asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(sent)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.transport.abort()


async def test_a_client_that_goes_within_its_handshake_leaves_nothing(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    listening, shaken = socket.create_server(("127.0.0.1", 0)), list[str]()
    async with serving(contexts[0], listening, shaken), asyncio.timeout(60):
        clients = [HalfDone(contexts[1], listening.getsockname()) for _ in range(20)]
        for client in clients:
            await client.answered()
        before = asyncio.all_tasks()
        for client in clients:
            client.finish(0, 100)
            client.socket.close()
        while asyncio.all_tasks() & before - {asyncio.current_task()}:
            await asyncio.sleep(0)
        assert shaken == [] and not [task for task in asyncio.all_tasks() if task.get_name() == "TLS handshake"]


ENDS = {
    "a ClientHello": client_hello(),
    "half of a ClientHello": client_hello()[:100],
    "no TLS": b"GET / HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("sent", ENDS.values(), ids=ENDS.keys())
@pytest.mark.parametrize("limit", [30.0, 0.2], ids=["the client leaves", "the time is over"])
async def test_handshakes_that_fail_leave_nothing_to_the_garbage_collector(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], sent: bytes, limit: float
) -> None:
    """Each would keep its buffers, 100 KB and more, until the collector's next run, which may be minutes later."""
    kinds = handshakes.HandshakeProtocol, ApiProtocol
    listening = socket.create_server(("127.0.0.1", 0))
    gc.collect()
    gc.disable()
    try:
        async with serving(contexts[0], listening, head_timeout=limit) as begun, asyncio.timeout(20):
            made = [socket.create_connection(listening.getsockname()) for _ in range(20)]
            for each in made:
                each.sendall(sent)
            while len(begun) < 20:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            for each in made:
                each.close()
            while left := sum(isinstance(each, kinds) for each in gc.get_objects()):
                await asyncio.sleep(0.05)
            assert not left
    finally:
        gc.enable()


class ClosedTransport:
    """A transport that uvloop has closed after an error: nothing but its calls tells."""

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport>; the handler is closed")


async def test_a_connection_that_is_closed_during_a_step_raises_nothing() -> None:
    async def compute(step: Callable[[], None]) -> None:
        step()

    steps: list[int] = []
    tls = SimpleNamespace(made=SimpleNamespace(step=lambda: steps.append(1)))
    inner = SimpleNamespace(
        connection_made=lambda transport: None,
        buffer_updated=lambda nbytes: None,
        go_on=lambda: False,
        done=asyncio.get_running_loop().create_future(),
        complete=True,
    )
    protocol = handshakes.HandshakeProtocol(inner, tls, compute, "192.0.2.1")  # type: ignore[arg-type]
    protocol.connection_made(ClosedTransport())  # type: ignore[arg-type]
    protocol.buffer_updated(1)
    assert protocol._step is not None
    await protocol._step
    assert steps == [1]
