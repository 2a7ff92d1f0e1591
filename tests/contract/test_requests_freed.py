"""Memory of requests, freed when they fail or end and not by the next garbage collection, which may be a minute away.

The entries of a collection whose deletion timed out, and the events of a closed watch, are as large as the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from control.registry import deletion
from kube.errors import StatusError
from tests.support.control import ADMIN, ApiUnderTest, api_server
from tests.support.garbage import garbage
from tests.support.slow_clients import RawClient

MAPS = "/api/v1/namespaces/default/configmaps"
HELD = {
    "frame",
    "StatusError",
    "Request",
    "Context",
    "Entry",
    "Watcher",
    "WatchEvent",
    "Slice",
    "RequestBody",
    "ApiProtocol",
}
Ask = Callable[[ApiUnderTest], Awaitable[None]]


async def times_out(api: ApiUnderTest) -> None:
    assert (await api.request("DELETE", f"{MAPS}?timeout=100ms")).status == 504


async def fails(api: ApiUnderTest) -> None:
    assert (await api.request("DELETE", f"{MAPS}?dryRun=All")).status == 409


async def conflicts(api: ApiUnderTest) -> None:
    assert (await api.request("POST", MAPS, {"metadata": {"name": "m1"}})).status == 409


async def watch_closes(api: ApiUnderTest) -> None:
    client = await RawClient.connect(api.api.listener.port, api.tls(*ADMIN))
    await client.send(f"GET {MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await client.head()
    client.close()
    async with asyncio.timeout(20):
        while any(api.api.pipeline.metrics.long_running.values()):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("ask", [times_out, fails, conflicts, watch_closes])
async def test_a_request_that_fails_or_ends_leaves_nothing_for_the_garbage_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    delete = deletion.delete

    async def slow(registry: Any, context: Any, resource: Any, namespace: str, name: str, options: Any) -> Any:
        if ask is times_out and resource.plural == "configmaps":
            await asyncio.Event().wait()
        if ask is fails:
            await asyncio.sleep(0)
            raise StatusError(409, "Conflict", name)
        return await delete(registry, context, resource, namespace, name, options)

    async with api_server(tmp_path) as api:
        for number in range(3):
            assert (await api.request("POST", MAPS, {"metadata": {"name": f"m{number}"}})).status == 201
        monkeypatch.setattr(deletion, "delete", slow)
        await ask(api)  # the first one creates what is kept
        await asyncio.sleep(0.05)
        with garbage() as left:
            await ask(api)
            await asyncio.sleep(0.05)
        assert left & HELD == set()
