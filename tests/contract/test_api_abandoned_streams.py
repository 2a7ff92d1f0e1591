"""Check that what a stream holds is released also if its client leaves before the stream's first step."""

import asyncio
from pathlib import Path

import pytest

from tests.contract.test_api_nodes import PODS, cluster
from tests.support.control import ADMIN, ApiUnderTest
from tests.support.slow_clients import RawClient

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
MAPS = "/api/v1/namespaces/default/configmaps"


async def abandon(server: ApiUnderTest, path: str) -> None:
    """Request a stream while others have the time of all streams, leave, and give it its turn when it has ended."""
    steps = server.api.pipeline._streams.here()
    steps._free, steps._renews = False, True
    client = await RawClient.connect(server.api.listener.port, server.tls(*ADMIN))
    try:
        await client.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert b" 200 " in await client.head()
    finally:
        client.close()
    while sum(server.api.pipeline.metrics.long_running.values()):
        await asyncio.sleep(0.01)
    steps._renew()


@pytest.mark.parametrize("kind", [b"text/plain", b"text/html"])
@pytest.mark.parametrize("path", [f"{PODS}/p/log?follow=true", "/api/v1/nodes/n/proxy/x"])
async def test_the_connection_to_the_node_is_closed(tmp_path: Path, path: str, kind: bytes) -> None:
    async with cluster(tmp_path) as (server, node), asyncio.timeout(30):
        node.answer = HEAD % kind
        await abandon(server, path)
        await node.closed.wait()


async def test_a_watch_is_no_longer_registered(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, _), asyncio.timeout(30):
        cached = server.api.cache._resources["/registry/configmaps/"]
        before = len(list(cached._watchers()))
        large = ",".join(f"v{number}" for number in range(2000))
        await abandon(server, f"{MAPS}?watch=1&labelSelector=x+notin+({large})")
        assert len(list(cached._watchers())) == before
