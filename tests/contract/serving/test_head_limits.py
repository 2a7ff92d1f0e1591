"""Limits of request heads: size, rate and time.

Each limit is tested with the protocols of the API server and the kubelet, over TLS and without, on both event loops.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from kube.serving.protocol import BoundedProtocol
from tests.contract.serving.sites import GET, Site, answered
from tests.support.iterations import Iterations
from tests.support.slow_clients import client_hello, closed, silent


@pytest.mark.parametrize("characters", ["%0D%0A", "%0A", "%0D", "%00"])
async def test_a_header_with_a_line_break_or_nul_is_not_sent(site: Site, characters: str) -> None:
    async with site.serving() as (port, _):
        client = await site.connect(port)
        await client.send(f"GET /invalid?{characters} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        answer = await client.rest()
        assert b"x-b" not in answer and (not answer or answer.startswith(b"HTTP/1.1 500 "))


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
    begun, iterations = list[int](), Iterations()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.append(iterations.number)
        await site.app(scope, receive, send)

    large = GET[:-2] + b"A: " + b"x" * 2000 + b"\r\n\r\n"
    async with site.serving(app, large_head=1000) as (port, server):
        clients = [await site.connect(port) for _ in range(8)]
        await asyncio.gather(*(answered(client) for client in clients))

        begun.clear()
        with iterations:
            for connection in tuple(server.server_state.connections):
                connection.data_received(large)  # type: ignore[union-attr]
            for client in clients:
                assert (await client.head()).startswith(b"HTTP/1.1 200 ")
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


async def test_a_connection_is_idle_from_its_last_answer(site: Site) -> None:
    async with site.serving(idle_timeout=0.5) as (port, _):
        client = await site.connect(port)
        for _ in range(4):
            assert await answered(client) == b"HTTP/1.1 200 OK"
            await asyncio.sleep(0.3)
        assert await answered(client) == b"HTTP/1.1 200 OK"
        start = time.monotonic()
        assert await client.rest() == b""
        assert time.monotonic() - start > 0.4


async def test_a_connection_in_use_outlives_the_time_limit_of_a_head(site: Site) -> None:
    async with site.serving(head_timeout=0.3) as (port, _):
        client = await site.connect(port)
        for _ in range(6):
            assert await answered(client) == b"HTTP/1.1 200 OK"
            await asyncio.sleep(0.1)
        client.close()
