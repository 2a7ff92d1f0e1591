"""The followers of roles, bindings and pods for the authorizers yield to the event loop between changes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from control.server.lookup import BY_TARGET, _follow
from control.storage import codec
from control.storage.cache import WatchCache
from control.storage.sqlite import SqliteStore

ROLES = "roles.rbac.authorization.k8s.io"
STEP = 0.002
COUNT = 60


def _role(name: str) -> bytes:
    return codec.encode({"kind": "Role", "metadata": {"name": name, "namespace": "shop"}, "rules": []})


class _Auth:
    """Takes 2 ms for each change, and notes in which iteration of the event loop it came."""

    def __init__(self) -> None:
        self.iterations, self.names, self.initial = Counter[int](), list[str](), list[str]()
        self.now = 0
        self.rbac = SimpleNamespace(compilation=SimpleNamespace(settled=self._settled))

    async def _settled(self) -> None:
        pass

    def replaced(self, target: str, objects: list[dict[str, Any]]) -> None:
        self.initial = [obj["metadata"]["name"] for obj in objects]

    def changed(self, target: str, event: str, obj: dict[str, Any]) -> None:
        until = time.perf_counter() + STEP
        while time.perf_counter() < until:
            pass
        self.iterations[self.now] += 1
        self.names.append(obj["metadata"]["name"])


async def test_a_batch_of_changed_roles_is_spread_over_iterations_of_the_event_loop(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "state.db")
    cache, resource = WatchCache(store), BY_TARGET[ROLES]
    cached = cache.resource(resource.storage_prefix, "Role", "rbac.authorization.k8s.io/v1")
    await store.create(f"{resource.storage_prefix}shop/first", _role("first"))
    auth, ready = _Auth(), asyncio.Event()
    registry: Any = SimpleNamespace(cache=cache, cached=lambda _: cached)

    async def count_iterations() -> None:
        while True:
            await asyncio.sleep(0)
            auth.now += 1

    followed: Any = auth
    tasks = [
        asyncio.create_task(cache.run()),
        asyncio.create_task(_follow(followed, registry, ROLES, ready.set)),
        asyncio.create_task(count_iterations()),
    ]
    try:
        await asyncio.wait_for(ready.wait(), 30)
        assert auth.initial == ["first"]
        names = [f"r{number:02}" for number in range(COUNT)]
        await asyncio.gather(*(store.create(f"{resource.storage_prefix}shop/{name}", _role(name)) for name in names))
        async with asyncio.timeout(30):
            while len(auth.names) < COUNT:
                await asyncio.sleep(0)
        assert sorted(auth.names) == names
        assert max(auth.iterations.values()) <= 2, auth.iterations
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks)
        await store.close()
