"""Cluster DNS under clients that say nothing, ask too much, or make up long questions."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from kube import loops
from kube.clock import SYSTEM
from kube.serving.acceptor import Acceptor
from kube.serving.fair_queue import PER_ITERATION
from kube.serving.limits import ServingLimits
from netproxy.dns import wire
from netproxy.dns.answer_factory import Answer
from netproxy.dns.cluster_dns import ClusterDNS
from netproxy.dns.forwarder import MAX_BYTES, Forwarder
from netproxy.dns.responder import MAX_OTHERS, Pending, Responder
from netproxy.dns.server import TCP_LIMITS, TCP_MESSAGE, DNSServer
from netproxy.dns.waiting_queries import MAX_WAITING, MAX_WAITING_CLIENT
from netproxy.dns.zone import Zone
from netproxy.tasks import start
from tests.support.hollow import eventually
from tests.support.ports import reserve
from tests.support.services import port, service
from tests.support.slow_clients import closed, silent
from tests.unit.netproxy.test_dns import CLUSTER, DOMAIN, Directory

NAME = "web.default.svc.cluster.local"


class Never(Forwarder):
    """Resolvers that do not answer."""

    async def ask(self, query: wire.Query, *, tcp: bool = False) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError


@asynccontextmanager
async def serving(forwarder: Forwarder | None = None, **limits: float) -> AsyncIterator[DNSServer]:
    responder = Responder(Zone(CLUSTER, DOMAIN), forwarder or Forwarder(list))
    server = DNSServer(responder, ["127.0.0.1"], reserve()[0], ServingLimits(**limits))  # type: ignore[arg-type]
    await server.start()
    try:
        yield server
    finally:
        server.close()


def question(name: str, number: int = 7, more: bytes = b"") -> bytes:
    head = struct.pack("!6H", number, 0x0100, 1, 0, 0, 1 if more else 0)
    return head + wire.encode_name(name) + b"\x00\x01\x00\x01" + more


def padded(number: int) -> bytes:
    """Return a question with EDNS padding, as long as a message may be and each another."""
    padding = struct.pack("!HH", 12, 3500) + os.urandom(3496) + struct.pack("!I", number)
    return question(NAME, 7, b"\x00" + struct.pack("!HHIH", wire.OPT, 1232, 0, len(padding)) + padding)


async def over_tcp(port: int, message: bytes) -> bytes:
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(struct.pack("!H", len(message)) + message)
        (length,) = struct.unpack("!H", await reader.readexactly(2))
        answer = await reader.readexactly(length)
        writer.close()
        return answer


async def over_udp(port: int, message: bytes, source: str = "127.0.0.1") -> bytes:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.setblocking(False)
        made.bind((source, 0))
        made.connect(("127.0.0.1", port))
        await loop.sock_sendall(made, message)
        async with asyncio.timeout(20):
            return await loop.sock_recv(made, 4096)


async def test_cluster_dns_serves_again_after_an_unforeseen_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "FIRST_RETRY", 0.1)
    server = DNSServer(Responder(Zone(CLUSTER, DOMAIN), Forwarder(list)), ["127.0.0.1"], reserve()[0])
    namespaces: Any = SimpleNamespace(run=asyncio.Event().wait)
    dns = ClusterDNS((), server._responder, server, namespaces, None)
    failures, begin = [TypeError("a bug")], Acceptor.start

    def fails_once(acceptor: Acceptor) -> None:
        begin(acceptor)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(Acceptor, "start", fails_once)

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            start(group, dns.tasks(), SYSTEM)

    running = asyncio.create_task(run())
    try:
        async with asyncio.timeout(20):
            while failures or not server.serving:
                await asyncio.sleep(0.01)
        for ask in (over_udp, over_tcp):
            assert (await ask(server.port, question(NAME)))[:2] == b"\x00\x07"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_idle_connections_do_not_block_others() -> None:
    async with serving(unauthenticated_per_peer=8, head_timeout=30) as server:
        silents = [silent(server.port) for _ in range(40)]
        await asyncio.sleep(0.1)
        assert wire.encode_name("web") and (await over_tcp(server.port, question(NAME)))[:2] == b"\x00\x07"
        assert len(server.table) <= 8
        for each in silents:
            each.close()


async def test_hundreds_of_simultaneous_queries_from_one_address_are_all_answered() -> None:
    async with serving(unauthenticated_per_peer=TCP_LIMITS.unauthenticated_per_peer) as server:
        requested = (over_tcp(server.port, question(NAME)) for _ in range(400))
        answers = await asyncio.gather(*requested, return_exceptions=True)
        assert [each for each in answers if isinstance(each, BaseException)] == []


async def test_a_long_message_over_tcp_closes_its_connection() -> None:
    async with serving(head_timeout=30) as server:
        assert len(padded(1)) < TCP_MESSAGE and (await over_tcp(server.port, padded(1)))[:2] == b"\x00\x07"
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(struct.pack("!H", TCP_MESSAGE + 1))
            assert await reader.read() == b""
            writer.close()


async def test_unfinished_and_further_messages_over_tcp_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    most = [0]
    feed = asyncio.StreamReader.feed_data

    def feed_data(self: Any, data: bytes) -> None:
        feed(self, data)
        most[0] = max(most[0], len(self._buffer))

    monkeypatch.setattr(asyncio.StreamReader, "feed_data", feed_data)
    async with serving(head_timeout=30) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.setblocking(False)
            message = struct.pack("!H", TCP_MESSAGE - 1) + b"x" * (TCP_MESSAGE - 2)
            await asyncio.get_running_loop().sock_sendall(client, message)
            await asyncio.sleep(0.2)
            with contextlib.suppress(BlockingIOError):
                client.send((b"x" + struct.pack("!H", TCP_MESSAGE) + b"y" * TCP_MESSAGE) * 60)
            await asyncio.sleep(0.2)
    assert TCP_MESSAGE <= most[0] <= 4 * TCP_MESSAGE


async def test_a_client_that_goes_while_it_is_answered_is_no_fault_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        message = question(NAME)
        writer.write(struct.pack("!H", len(message)) + message)
        await reader.readexactly(int.from_bytes(await reader.readexactly(2)))

        async def leaving(pending: Pending) -> bytes:
            server.table.make_room()
            await asyncio.sleep(0.05)
            return message

        monkeypatch.setattr(server._responder, "_look_up", lambda query, key, limit: None)
        monkeypatch.setattr(server._responder, "finish", leaving)
        writer.write(struct.pack("!H", len(message)) + message)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        while asyncio.all_tasks() != {asyncio.current_task()}:
            await asyncio.sleep(0)
        del reader, writer
        gc.collect()  # a task that failed says so when it is forgotten
    assert faults == []


async def test_a_connection_that_sends_too_little_is_closed() -> None:
    async with serving(head_timeout=0.3) as server:
        for beginning in (b"", b"\x00", b"\x00\x20ab"):
            client = silent(server.port)
            client.sendall(beginning)
            assert await asyncio.to_thread(closed, client)
        assert len(server.table) == 0


async def test_a_connection_that_stays_idle_after_an_answer_is_closed() -> None:
    async with serving(head_timeout=0.3) as server:
        client = silent(server.port)
        message = question(NAME)
        client.sendall(struct.pack("!H", len(message)) + message)
        assert await asyncio.to_thread(closed, client)


async def test_questions_sent_at_once_on_a_connection_are_answered_in_turn_with_others() -> None:
    turn, answered = 0, Counter[int]()

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(next_turn)

    loop = asyncio.get_running_loop()
    async with serving() as server:
        begin = server._responder.begin

        def counting(data: bytes, *, tcp: bool = False) -> bytes | Pending:
            answered[turn] += 1
            return begin(data, tcp=tcp)

        server._responder.begin = counting  # type: ignore[method-assign]
        next_turn()
        message = question(NAME)
        framed = struct.pack("!H", len(message)) + message
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(framed * 300)
        async with asyncio.timeout(20):
            for _ in range(300):
                (length,) = struct.unpack("!H", await reader.readexactly(2))
                await reader.readexactly(length)
        writer.close()
    assert answered.total() == 300
    assert max(answered.values()) <= PER_ITERATION


async def test_one_clients_waiting_queries_leave_room_for_those_of_others() -> None:
    requested: list[bytes] = []

    class Counting(Never):
        async def ask(self, query: wire.Query, *, tcp: bool = False) -> bytes:
            requested.append(query.question)
            return await super().ask(query, tcp=tcp)

    async with serving(Counting(list)) as server:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as greedy:
            greedy.connect(("127.0.0.1", server.port))
            for number in range(MAX_WAITING_CLIENT + 100):
                greedy.send(question(f"n{number}.example.com", number))
                if number % 50 == 0:
                    await asyncio.sleep(0.01)
            await eventually(lambda: len(requested) >= MAX_WAITING_CLIENT)
            await asyncio.sleep(0.2)
            assert len(requested) == MAX_WAITING_CLIENT
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(("127.0.0.2", 0))
            other.connect(("127.0.0.1", server.port))
            other.send(question("other.example.com"))
            await eventually(lambda: len(requested) > MAX_WAITING_CLIENT)
        assert len(requested) == MAX_WAITING_CLIENT + 1
        assert (await over_udp(server.port, question(NAME)))[:2] == b"\x00\x07"


async def test_clients_that_use_all_slots_yield_to_one_with_fewer_queries() -> None:
    class Selective(Never):
        async def ask(self, query: wire.Query, *, tcp: bool = False) -> bytes:
            if b"good" in query.question:
                return struct.pack("!6H", query.id, 0x8180, 1, 0, 0, 0) + query.question
            return await super().ask(query, tcp=tcp)

    async with serving(Selective(list)) as server:
        for last in range(2, 2 + MAX_WAITING // MAX_WAITING_CLIENT):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as greedy:
                greedy.bind((f"127.0.0.{last}", 0))
                greedy.connect(("127.0.0.1", server.port))
                for number in range(MAX_WAITING_CLIENT):
                    greedy.send(question(f"n{last}-{number}.example.com", number))
                    if number % 50 == 0:
                        await asyncio.sleep(0.01)
        await eventually(lambda: len(server._waiting) == MAX_WAITING)
        for _ in range(3):
            answer = await over_udp(server.port, question("good.example"), "127.0.0.9")
            assert answer[:2] == b"\x00\x07"
        assert (await over_tcp(server.port, question("good.example")))[:2] == b"\x00\x07"


async def test_a_query_without_waiting_clients_is_cancelled() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as resolver:
        resolver.bind(("127.0.0.1", 0))
        forwarder = Forwarder(lambda: [f"127.0.0.1:{resolver.getsockname()[1]}"])
        query = wire.parse_query(question("example.com"))
        first, second = (asyncio.create_task(forwarder.ask(query)) for _ in range(2))
        await eventually(lambda: len(forwarder._in_flight) == 1)
        (in_flight,) = forwarder._in_flight.values()
        first.cancel()
        await asyncio.sleep(0.05)
        assert not in_flight.task.done()
        second.cancel()
        await eventually(lambda: in_flight.task.cancelled() and not forwarder._in_flight)


async def test_clients_that_disconnect_leave_no_more_tcp_queries_than_others_may_have() -> None:
    requested: list[bytes] = []

    class Counting(Never):
        async def ask(self, query: wire.Query, *, tcp: bool = False) -> bytes:
            requested.append(query.question)
            return await super().ask(query, tcp=tcp)

    async with serving(Counting(list)) as server:
        for number in range(MAX_WAITING_CLIENT + 50):
            message = question(f"n{number}.example.com", number)
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(struct.pack("!H", len(message)) + message)
                await asyncio.sleep(0.002)
        await eventually(lambda: len(requested) >= MAX_WAITING_CLIENT)
        await asyncio.sleep(0.2)
        assert len(requested) == MAX_WAITING_CLIENT
        assert (await over_tcp(server.port, question(NAME)))[:2] == b"\x00\x07"


async def test_a_question_that_waits_for_resolvers_is_looked_up_once() -> None:
    lookups: list[str] = []

    class Counted(Zone):
        def answer(self, name: str, *rest: Any) -> Answer | None:
            lookups.append(name)
            return super().answer(name, *rest)

    async with serving() as server:
        server._responder._zone = Counted(CLUSTER, DOMAIN)
        for ask in (over_udp, over_tcp):
            answer = await ask(server.port, question("7.2.0.192.in-addr.arpa", 9))
            assert answer[:2] == b"\x00\x09" and answer[3] & 0x0F == wire.SERVFAIL
    assert len(lookups) == 2


async def test_questions_with_padding_find_one_kept_answer() -> None:
    async with serving() as server:
        for number in range(20):
            answer = await over_udp(server.port, padded(number))
            assert answer[3] & 0x0F == wire.NOERROR
        assert len(server._responder._services) == 1


def test_answers_from_outside_are_kept_up_to_a_limit_in_bytes() -> None:
    forwarder = Forwarder(list)
    record = b"\xc0\x0c" + struct.pack("!HHIH", wire.A, wire.IN, 300, 2000) + bytes(2000)
    for number in range(2 * MAX_BYTES // 2000):
        answer = struct.pack("!6H", 7, 0x8180, 1, 1, 0, 0) + question(f"n{number}.example.com")[12:] + record
        forwarder._store(number, answer, 0.0)
        assert len(forwarder._cached) * len(record) <= forwarder._cached.size <= MAX_BYTES
    before = len(forwarder._cached)
    assert before > 100
    large = struct.pack("!6H", 7, 0x8180, 1, 40, 0, 0) + question("example.com")[12:] + record * 40
    forwarder._store("large", large, 0.0)
    assert len(forwarder._cached) == before


def test_made_up_names_take_a_limited_place_and_leave_that_of_names_that_exist() -> None:
    server = Responder(Zone(CLUSTER, DOMAIN), Forwarder(list))
    server.quick(question(NAME))
    for number in range(3 * MAX_OTHERS):
        answer = server.quick(question(f"made-up-{number}.default.svc.cluster.local"))
        assert answer is not None
        assert answer[3] & 0x0F == wire.NXDOMAIN
        assert len(server._others) <= MAX_OTHERS
    assert len(server._services) == 1
    assert sum(map(len, server._others._about.values())) == len(server._others)


def test_a_service_that_appears_is_answered_although_its_name_was_missing() -> None:
    directory = Directory()
    server = Responder(Zone(directory, DOMAIN), Forwarder(list))
    before = server.quick(question(NAME))
    assert before is not None
    assert before[3] & 0x0F == wire.NXDOMAIN
    directory.services["default/web"] = service("web", "10.96.5.1", port("http", 80))
    server.forget("default/web")
    after = server.quick(question(NAME))
    assert after is not None
    assert after[3] & 0x0F == wire.NOERROR
    assert len(server._others) == 0
