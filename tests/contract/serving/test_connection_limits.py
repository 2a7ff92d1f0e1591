"""Limits of connections and of memory: floods, file descriptors, and clients that do not read."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from typing import Any

import pytest

from kube.serving import sending
from kube.serving.sending import BUFFERED
from tests.contract.serving.sites import GET, LARGE, POST, Site, answered
from tests.support.hollow import eventually
from tests.support.slow_clients import RawClient, silent


# -- connections ------------------------------------------------------------------------------------------------------
async def test_one_address_has_a_limited_number_of_connections_of_nobody(site: Site) -> None:
    async with site.serving(unauthenticated_per_peer=8) as (port, server):
        clients = [await site.connect(port, b"GET") for _ in range(20)]
        await eventually(lambda: server.table.closed == 12)
        assert len(server.table) == 8
        assert sum(client.open for client in clients) == 8
        for client in clients:
            client.close()


async def test_idle_connections_are_closed_before_one_in_use(site: Site) -> None:
    async with site.serving(unauthenticated_per_peer=8) as (port, server):
        client = await site.connect(port, b"GET / HTTP/1.1\r\n")
        await asyncio.sleep(0.1)  # what it sent is read, so that it is in use
        silents = [silent(port) for _ in range(50)]
        await eventually(lambda: server.table.closed == 43)
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
        await eventually(lambda: (server.table.authenticated, server.table.unauthenticated) == (4, 0))
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
        await eventually(lambda: len(server.table) == 1)
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


@pytest.mark.parametrize("waits", [True, False], ids=["sends on", "has no more to send"])
async def test_a_stream_that_is_not_read_is_counted_whoever_waits(
    site: Site, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The limit of one address's stalled connections would close the others, where the loop is held for a second.
    monkeypatch.setattr(sending, "STALLED", 600)

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        (protocol,) = (each for each in server.server_state.connections if each.scope is scope)  # type: ignore[union-attr]
        protocol.may_read_slowly = True  # type: ignore[union-attr]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not protocol.transport.is_closing():  # type: ignore[union-attr]
            if not waits and protocol.flow.write_paused:  # type: ignore[union-attr]
                await asyncio.sleep(0.05)  # the kernel may take more
            else:
                await send({"type": "http.response.body", "body": b"x" * 50_000, "more_body": True})
                # asyncio's TLS transport drops what is sent to a client that has gone, and closes in a later iteration.
                await asyncio.sleep(0)

    async with site.serving(stream, send_buffer=50_000, unread_bytes=3 * BUFFERED) as (port, server):
        clients = []
        for _ in range(5):
            clients.append(await site.connect(port, GET))
            clients[-1].writer.transport.pause_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(20):
            # While the kernel takes more of each, nothing is held for a moment.
            while not (server.table.closed and server.table.buffered_bytes):
                await asyncio.sleep(0.05)
                assert server.table.buffered_bytes <= 3 * BUFFERED
        assert len(server.table) < 5
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
        await eventually(lambda: server.table.closed == 3)
        assert server.table.buffered_bytes <= 100_000
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
            await eventually(lambda: len(server.server_state.connections) == 5)
            protocols = [weakref.ref(each) for each in server.server_state.connections]
            for client in clients:
                client.close()
            await eventually(lambda: [each() for each in protocols] == [None] * 5)
        finally:
            gc.enable()
