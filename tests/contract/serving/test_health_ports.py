"""The proxy's health and metrics ports under clients that are slow or many."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from kube.serving import aiohttp_runner
from kube.serving.aiohttp_runner import BoundedRunner
from kube.serving.limits import ServingLimits
from netproxy.health import Health, health_app, serve
from tests.support.hollow import eventually
from tests.support.iterations import Iterations
from tests.support.slow_clients import RawClient, closed, silent

GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


@asynccontextmanager
async def serving(**limits: float) -> AsyncIterator[BoundedRunner]:
    runner = await serve(health_app(Health()), "127.0.0.1", 0, ServingLimits(**limits))  # type: ignore[arg-type]
    try:
        yield runner
    finally:
        await runner.cleanup()
        await eventually(lambda: len(runner.table) == 0)


async def test_a_head_that_does_not_come_ends_the_connection() -> None:
    async with serving(head_timeout=0.3) as runner:
        assert await asyncio.to_thread(closed, silent(runner.port))
        beginnings = (b"GET", b"GET /livez HTTP/1.1\r\nA: b\r\n", GET)
        clients = [await RawClient.connect(runner.port, data=beginning) for beginning in beginnings]
        await asyncio.gather(*(client.rest() for client in clients))  # each has some seconds to finish


PIPELINED = {
    "answered": b"GET /livez HTTP/1.1\r\nHost:\r\n\r\n",
    "not found": b"GET /a HTTP/1.1\r\nHost:\r\n\r\n",
    "refused": b"GET / HTTP/1.1\r\nHost:\r\nExpect: a\r\n\r\n",
}


@pytest.mark.parametrize("request_", PIPELINED.values(), ids=PIPELINED)
async def test_pipelined_requests_are_answered_in_iterations_of_their_own(
    request_: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Python 3.12 and newer all that one read brought were answered in one, which also answers cluster DNS."""
    answered, iterations = Counter[int](), Iterations()
    finish = web.Response.prepare

    async def prepare(self: web.Response, *arguments: Any) -> Any:
        answered[iterations.number] += 1
        return await finish(self, *arguments)

    monkeypatch.setattr(web.Response, "prepare", prepare)
    with iterations:
        async with serving() as runner:
            client = await RawClient.connect(runner.port, data=request_ * 200)
            await eventually(lambda: answered.total() == 200)
            client.close()
    assert max(answered.values()) == 1


async def test_the_handler_of_a_request_is_not_entered_in_the_iteration_that_read_it() -> None:
    async with serving() as runner:
        assert runner.server is not None
        handled = cast(Coroutine[Any, Any, Any], runner.server.request_handler(make_mocked_request("GET", "/livez")))
        assert handled.send(None) is None  # suspended, where an answer would have raised StopIteration
        handled.close()


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_compressed_body_is_not_decompressed(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kilobyte would become a megabyte, in one step of the event loop that also answers cluster DNS."""
    made = list[int]()

    def decompress(*_: object, **__: object) -> None:
        made.append(1)

    for name in ("decompressobj", "decompress"):
        monkeypatch.setattr(zlib, name, decompress)
    body = gzip.compress(bytes(8 << 20))
    head = f"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n"
    async with serving() as runner:
        client = await RawClient.connect(runner.port, data=head.encode() + body)
        assert (await client.head()).startswith(b"HTTP/1.1 200 ")
        client.close()
    assert made == []


async def test_a_malformed_body_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    heads = (b"Content-Encoding: gzip\r\nContent-Length: 8\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n")
    async with serving() as runner:
        for head in heads:
            client = await RawClient.connect(runner.port, data=GET[:-2] + b"Connection: close\r\n" + head + b"xxxxxxxx")
            await client.rest()
    assert caplog.text == ""


async def test_what_is_sent_after_the_answer_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiohttp_runner, "REQUEST_BYTES", 1 << 30)
    async with serving(head_timeout=60.0) as runner:
        head = b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
        client = await RawClient.connect(runner.port, data=head)
        async with asyncio.timeout(5):  # less than aiohttp would read on
            assert (await client.rest()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(("piece", "times"), [(b"\r\n" * 20_000, 1), (GET * 30, 300)], ids=["at once", "in all"])
async def test_who_sends_more_than_requests_need_is_disconnected(piece: bytes, times: int) -> None:
    async with serving(head_timeout=60.0) as runner:
        client = await RawClient.connect(runner.port, data=b"")
        with contextlib.suppress(ConnectionError):
            for _ in range(times):
                await client.send(piece)
                await asyncio.sleep(0)
            async with asyncio.timeout(10):
                await client.rest()
        await eventually(lambda: len(runner.table) == 0)


async def test_one_address_cannot_keep_others_of_the_same_address_out() -> None:
    async with serving(unauthenticated_per_peer=8) as runner:
        slow = [await RawClient.connect(runner.port, data=b"GET /livez HTTP/1.1\r\nA: ") for _ in range(30)]
        client = await RawClient.connect(runner.port, data=GET)
        assert (await client.head()).startswith(b"HTTP/1.1 200 ")
        assert len(runner.table) <= 8
        for each in (client, *slow):
            each.close()


async def test_a_head_that_is_too_large_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as runner:
        client = await RawClient.connect(runner.port, data=b"GET /livez HTTP/1.1\r\nA: " + b"x" * 20_000 + b"\r\n\r\n")
        assert b" 400 Bad Request\r\n" in await client.rest()
        assert caplog.text == ""  # nobody's log is filled from outside
