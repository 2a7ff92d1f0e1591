"""The proxy's health and metrics ports under clients that are slow or many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kube.serving.aiohttp_runner import BoundedRunner
from kube.serving.limits import ServingLimits
from netproxy.health import Health, health_app, serve
from tests.support.hollow import eventually
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
