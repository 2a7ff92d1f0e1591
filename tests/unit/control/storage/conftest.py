"""A store on a file of its own with a running watch cache of pods and nodes in front."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from control.storage import codec
from control.storage.cache import WatchCache
from control.storage.resource_cache import ResourceCache
from control.storage.sqlite import SqliteStore
from control.storage.store import Item
from tests.support.clock import FakeClock

PODS, NODES = "/registry/pods/", "/registry/minions/"


def pod(name: str, namespace: str = "default", labels: dict[str, str] | None = None, node: str = "") -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if labels:
        metadata["labels"] = labels
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"nodeName": node}}


@dataclass
class Bench:
    store: SqliteStore
    clock: FakeClock
    cache: WatchCache
    pods: ResourceCache
    nodes: ResourceCache
    task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.task = asyncio.create_task(self.cache.run())
        await self.cache.wait_ready()

    async def stop(self) -> None:
        await self.stop_cache()
        await self.store.close()

    async def stop_cache(self) -> None:
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task

    async def create(self, obj: dict[str, Any]) -> Item:
        item = await self.store.create(self.key(obj), codec.encode(obj))
        await self.cache.wait_fresh(item.revision)
        return item

    async def update(self, obj: dict[str, Any]) -> Item:
        current = await self.store.get(self.key(obj))
        assert current is not None
        item = await self.store.update(self.key(obj), codec.encode(obj), current.revision)
        await self.cache.wait_fresh(item.revision)
        return item

    async def delete(self, name: str, namespace: str = "default") -> Item:
        item = await self.store.delete(f"{PODS}{namespace}/{name}")
        await self.cache.wait_fresh(item.revision)
        return item

    @staticmethod
    def key(obj: dict[str, Any]) -> str:
        return f"{PODS}{obj['metadata']['namespace']}/{obj['metadata']['name']}"


async def make_bench(path: Path) -> Bench:
    store, clock = await SqliteStore.open(path), FakeClock()
    cache = WatchCache(store, clock)
    pods = cache.resource(PODS, "Pod", "v1", lambda obj: {"spec.nodeName": obj.get("spec", {}).get("nodeName", "")})
    return Bench(store, clock, cache, pods, cache.resource(NODES, "Node", "v1"))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = await make_bench(tmp_path / "state.db")
    await made.start()
    yield made
    await made.stop()
