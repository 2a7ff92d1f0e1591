"""Limits of request bodies: time, trailers and chunks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.contract.serving.sites import POST, Site


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


@pytest.mark.parametrize("rest", [b"0\r\nA: ", b"1;"], ids=["trailer", "extension of a chunk"])
async def test_what_comes_beside_a_body_is_limited_however_large_the_body_is(site: Site, rest: bytes) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n80000\r\n" + b"x" * 0x80000 + b"\r\n"
    async with site.serving() as (port, _):
        client = await site.connect(port, head + rest)
        waiting, sent = asyncio.create_task(client.rest()), 0
        while not waiting.done() and sent < 4 << 20:
            await client.send(b"x" * 10_000)
            sent += 10_000
            await asyncio.sleep(0)
        assert b"200" not in await waiting and sent < 4 << 20


@pytest.mark.parametrize("pieces", [1, 2, 3])
async def test_trailers_are_no_headers(site: Site, pieces: int) -> None:
    """A proxy takes the headers away that only it may set, and may pass trailers on."""
    seen: list[list[tuple[bytes, bytes]]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        seen.append(list(scope["headers"]))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    head = b"POST / HTTP/1.1\r\nHost: x\r\nX-Remote-User: alice\r\nTransfer-Encoding: chunked\r\n\r\n"
    trailers = b"X-Remote-Group: system:masters\r\nX-Remote-User: root\r\nExpect: 100-continue\r\n\r\n"
    parts = (head, b"1\r\nx\r\n", b"0\r\n" + trailers)
    first, rest = b"".join(parts[: len(parts) - pieces + 1]), parts[len(parts) - pieces + 1 :]
    async with site.serving(app) as (port, _):
        client = await site.connect(port, first)
        for part in rest:
            await asyncio.sleep(0.05)
            await client.send(part)
        assert (await client.head()).startswith(b"HTTP/1.1 200 ")
        # The next request on the connection has headers again.
        await client.send(b"GET / HTTP/1.1\r\nHost: y\r\nA: b\r\n\r\n")
        assert (await client.head()).startswith(b"HTTP/1.1 200 ")
        client.close()
    assert seen == [
        [(b"host", b"x"), (b"x-remote-user", b"alice"), (b"transfer-encoding", b"chunked")],
        [(b"host", b"y"), (b"a", b"b")],
    ]


async def test_a_body_in_small_chunks_is_read(site: Site) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with site.serving(head_bytes=1000) as (port, _):
        client = await site.connect(port, head)
        for _ in range(5):
            await client.send(b"1\r\nx\r\n" * 50)
        await client.send(b"0\r\n\r\n")
        assert (await client.head()).startswith(b"HTTP/1.1 200 ")
        assert site.bodies == [b"x" * 250]
        client.close()


async def test_thousands_of_chunks_in_one_read_are_refused_unless_they_are_large(site: Site) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with site.serving() as (port, _):
        client = await site.connect(port, head + b"1\r\nx\r\n" * 40_000 + b"0\r\n\r\n")
        assert b"200" not in await client.rest()
        assert site.bodies == []
        client = await site.connect(port, head + (b"32\r\n" + b"x" * 50 + b"\r\n") * 4000 + b"0\r\n\r\n")
        assert (await client.head()).startswith(b"HTTP/1.1 200 ")
        assert site.bodies == [b"x" * 200_000]
        client.close()


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 2\r\n\r\nok", b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"]
)
async def test_an_upgrade_with_a_body_is_refused(site: Site, framing: bytes) -> None:
    """The parser would pass the request on without its body: a deletion without its preconditions, for example."""
    async with site.serving() as (port, _):
        upgrade = b"Host: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
        client = await site.connect(port, b"POST / HTTP/1.1\r\n" + upgrade + framing)
        assert (await client.rest()).startswith(b"HTTP/1.1 400 ")
        assert site.bodies == []
        client = await site.connect(port, b"POST / HTTP/1.1\r\n" + upgrade + b"Content-Length: 0\r\n\r\n")
        assert (await client.head()).startswith(b"HTTP/1.1 200 ")
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
