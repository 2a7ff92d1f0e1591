"""A server that shares its store and lags behind what another one has acknowledged never answers from its old state."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from control.registry import creation, deletion, updating
from control.registry.context import SERVER, Context
from control.registry.deletion_plan import DeleteOptions
from control.registry.registry import Registry
from control.storage import cache
from control.storage.cache import WatchCache
from control.storage.sqlite import SqliteStore
from control.storage.store import Batch, Watch
from kube.clock import SYSTEM
from kube.errors import StatusError
from kube.resources import by_path

CONFIGMAPS = by_path("", "v1", "configmaps")
PODS = by_path("", "v1", "pods")
assert CONFIGMAPS is not None and PODS is not None


class NoAdmission:
    async def admit(self, attributes: Any) -> None:
        pass

    async def validate(self, attributes: Any) -> None:
        pass


class LateWatch:
    def __init__(self, watch: Watch, gate: asyncio.Event) -> None:
        self._watch, self._gate = watch, gate
        self.request_progress, self.aclose = watch.request_progress, watch.aclose

    def __aiter__(self) -> LateWatch:
        return self

    async def __anext__(self) -> Batch:
        batch = await self._watch.__anext__()
        await self._gate.wait()
        return batch


class Late:
    """A store whose watches deliver only while the gate is open."""

    def __init__(self, store: SqliteStore) -> None:
        self._store, self.gate = store, asyncio.Event()
        self.gate.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def watch(self, prefix: str, after_revision: int, previous: bool = False) -> LateWatch:
        return LateWatch(self._store.watch(prefix, after_revision, previous=previous), self.gate)


@dataclass
class Servers:
    store: SqliteStore
    quick: Registry
    late: Registry


@pytest.fixture
async def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Servers]:
    """Two servers over one store, with one ConfigMap; the late one hears of nothing that comes after it."""
    monkeypatch.setattr(cache, "FRESH_SECONDS", 0.05)
    monkeypatch.setattr(WatchCache.wait_fresh, "__defaults__", (0.05,))
    store = await SqliteStore.open(tmp_path / "state.db")
    behind = Late(store)
    caches = [WatchCache(store), WatchCache(behind)]
    quick, late = (Registry(s, c, NoAdmission(), SYSTEM) for s, c in zip((store, behind), caches, strict=True))  # type: ignore[arg-type]
    tasks = [asyncio.create_task(c.run()) for c in caches]
    for each in caches:
        await each.wait_ready()
    made = await creation.create(quick, Context(SERVER), CONFIGMAPS, "default", configmap("x", replicas="3"))
    await caches[1].wait_fresh(int(json.loads(made.data)["metadata"]["resourceVersion"]))
    behind.gate.clear()
    try:
        yield Servers(store, quick, late)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await store.close()


def configmap(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


async def set_to(registry: Registry, name: str, value: str, revision: str = "") -> dict[str, Any]:
    async def change(old: dict[str, Any] | None) -> dict[str, Any]:
        assert old is not None
        old["data"] = {"replicas": value}
        if revision:
            old["metadata"]["resourceVersion"] = revision
        return old

    written = await updating.update(registry, Context(SERVER), CONFIGMAPS, "default", name, change)
    shown: dict[str, Any] = json.loads(written.data)
    return shown


async def stored(servers: Servers, name: str) -> dict[str, Any]:
    item = await servers.store.get(f"/registry/configmaps/default/{name}")
    assert item is not None
    found: dict[str, Any] = json.loads(item.value)
    found["metadata"]["resourceVersion"] = str(item.revision)
    return found


async def test_what_would_change_nothing_of_an_old_state_is_written_to_the_newest(servers: Servers) -> None:
    await set_to(servers.quick, "x", "5")
    answered = await set_to(servers.late, "x", "3")
    assert answered["data"] == (await stored(servers, "x"))["data"] == {"replicas": "3"}


async def test_a_revision_that_only_the_store_knows_is_no_conflict(servers: Servers) -> None:
    newest = (await set_to(servers.quick, "x", "5"))["metadata"]["resourceVersion"]
    assert (await set_to(servers.late, "x", "7", newest))["data"] == {"replicas": "7"}
    with pytest.raises(StatusError) as refused:
        await set_to(servers.late, "x", "8", newest)
    assert refused.value.conflict


async def test_what_another_server_has_created_is_found(servers: Servers) -> None:
    await creation.create(servers.quick, Context(SERVER), CONFIGMAPS, "default", configmap("y"))
    assert (await set_to(servers.late, "y", "1"))["data"] == {"replicas": "1"}
    await creation.create(servers.quick, Context(SERVER), CONFIGMAPS, "default", configmap("z"))
    _, gone, _ = await deletion.delete(servers.late, Context(SERVER), CONFIGMAPS, "default", "z", DeleteOptions())
    assert gone and await servers.store.get("/registry/configmaps/default/z") is None
    with pytest.raises(StatusError) as missing:
        await set_to(servers.late, "nobody", "1")
    assert missing.value.not_found


async def test_a_dry_run_shows_what_would_come_of_the_newest_state(servers: Servers) -> None:
    newest = await set_to(servers.quick, "x", "5")
    await creation.create(servers.quick, Context(SERVER), CONFIGMAPS, "default", configmap("y"))
    dry_run = Context(SERVER, dry_run=True)

    async def label(old: dict[str, Any] | None) -> dict[str, Any]:
        assert old is not None
        return old | {"metadata": old["metadata"] | {"labels": {"a": "b"}}}

    shown = json.loads((await updating.update(servers.late, dry_run, CONFIGMAPS, "default", "x", label)).data)
    assert shown["data"] == {"replicas": "5"}
    assert shown["metadata"]["resourceVersion"] == newest["metadata"]["resourceVersion"]
    with pytest.raises(StatusError) as there:
        await creation.create(servers.late, dry_run, CONFIGMAPS, "default", configmap("y"))
    assert there.value.already_exists
    await deletion.delete(servers.quick, Context(SERVER), CONFIGMAPS, "default", "x", DeleteOptions())
    with pytest.raises(StatusError) as missing:
        await deletion.delete(servers.late, dry_run, CONFIGMAPS, "default", "x", DeleteOptions(dry_run=True))
    assert missing.value.not_found


async def test_a_precondition_is_compared_with_the_newest_state(servers: Servers) -> None:
    await deletion.delete(servers.quick, Context(SERVER), CONFIGMAPS, "default", "x", DeleteOptions())
    await creation.create(servers.quick, Context(SERVER), CONFIGMAPS, "default", configmap("x"))
    uid = (await stored(servers, "x"))["metadata"]["uid"]
    options = DeleteOptions(preconditions={"uid": uid})
    _, gone, _ = await deletion.delete(servers.late, Context(SERVER), CONFIGMAPS, "default", "x", options)
    assert gone


async def test_a_deletion_that_seems_to_wait_for_a_finalizer_looks_at_the_newest_state(servers: Servers) -> None:
    held = configmap("held")
    held["metadata"]["finalizers"] = ["example.com/wait"]
    await creation.create(servers.quick, Context(SERVER), CONFIGMAPS, "default", held)
    await deletion.delete(servers.quick, Context(SERVER), CONFIGMAPS, "default", "held", DeleteOptions())
    late_gate = servers.late.store.gate  # type: ignore[attr-defined]
    late_gate.set()
    await servers.late.cache.wait_current()
    late_gate.clear()

    async def release(old: dict[str, Any] | None) -> dict[str, Any]:
        assert old is not None
        del old["metadata"]["finalizers"]
        return old

    await updating.update(servers.quick, Context(SERVER), CONFIGMAPS, "default", "held", release)
    with contextlib.suppress(StatusError):
        await deletion.delete(servers.late, Context(SERVER), CONFIGMAPS, "default", "held", DeleteOptions())
        pytest.fail("it is gone: 404")
