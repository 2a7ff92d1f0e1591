"""Cancels a coroutine at each of its suspensions, one after the other, and says whether a server's writes are still whole."""

from __future__ import annotations

import asyncio
import contextlib
import types
from collections.abc import Coroutine, Generator
from typing import Any

from control.registry.core.service.strategy import ServiceStrategy
from control.storage import codec
from control.storage.store import KeyNotFound
from kube.resources import by_path
from tests.support.control import ApiUnderTest

Yielded = asyncio.Future[Any] | None


async def cut(work: Coroutine[Any, Any, Any], number: int, *, late: bool) -> bool:
    """Cancel `work` at its n-th suspension, counted from 0; False if it ends before that.

    Where `late`, what the suspension waits for is done first: a write is stored, and its caller does not learn of it.
    """
    task = asyncio.create_task(_cut(work, number, late))
    await asyncio.gather(task, return_exceptions=True)
    return task.cancelled()


@types.coroutine
def _cut(work: Coroutine[Any, Any, Any], number: int, late: bool) -> Generator[Yielded, None, Any]:
    task = asyncio.current_task()
    assert task is not None
    steps = work.__await__()
    sent: BaseException | None = None
    for count in range(1_000_000):
        try:
            future: Yielded = next(steps) if sent is None else steps.throw(sent)
        except StopIteration as stop:
            return stop.value
        if count == number:
            if late and future is not None:
                future.add_done_callback(lambda _: task.cancel())
            else:
                task.cancel()
        sent = None
        try:
            yield future
        except BaseException as error:
            sent = error
    raise AssertionError("the work never ends")


async def settled(api: ApiUnderTest) -> None:
    """Wait for writes that go on without their requests, and for the watch cache."""
    if api.api.registry.unfinished:
        await asyncio.wait(set(api.api.registry.unfinished), timeout=10)
    with contextlib.suppress(KeyNotFound):  # writes are done in the order in which they were asked for
        await api.api.registry.store.delete("/registry/nothing")
    await api.api.cache.wait_current()


def check_allocations(api: ApiUnderTest) -> None:
    """Check that allocations, their records and the Services agree."""
    registry = api.api.registry
    services, addresses = by_path("", "v1", "services"), by_path("networking.k8s.io", "v1", "ipaddresses")
    assert services is not None and addresses is not None
    strategy = registry.strategy(services)
    assert isinstance(strategy, ServiceStrategy)
    found = [entry.obj for entry in registry.cached(services).list().entries]
    taken = {ip for s in found for ip in s["spec"].get("clusterIPs") or ()}
    ports = {p["nodePort"] for s in found for p in s["spec"].get("ports") or () if p.get("nodePort")}
    assert {e.obj["metadata"]["name"] for e in registry.cached(addresses).list().entries} == taken
    assert set(strategy.allocator.ports.ports.owners()) == ports
    assert not strategy.allocator._pending


async def check_whole(api: ApiUnderTest) -> None:
    """The cache shows what the store holds, each object has its system fields, and no request has a seat any more."""
    pipeline, registry = api.api.pipeline, api.api.registry
    prefixes = tuple(cache.prefix for cache in registry.caches())
    page = await registry.store.list("/registry/")
    await registry.cache.wait_fresh(page.revision)
    while registry.cache.revision != page.revision:  # the server writes on its own account
        page = await registry.store.list("/registry/")
        await registry.cache.wait_fresh(page.revision)
    stored = {item.key: item for item in page.items if item.key.startswith(prefixes)}
    cached = {entry.key: entry.revision for cache in registry.caches() for entry in cache.list().entries}
    differing = cached.items() ^ {key: item.revision for key, item in stored.items()}.items()
    assert not differing, differing
    for item in stored.values():
        meta = codec.decode(item.value)["metadata"]
        assert meta["name"] and meta["uid"] and meta["creationTimestamp"], item.key
    assert not any(pipeline.in_flight().values())
    assert not any(level.executing for level in pipeline.fairness.levels.values())
