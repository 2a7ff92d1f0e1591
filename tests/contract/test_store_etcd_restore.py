"""Snapshots of the etcd engine: restores into etcd, from SQLite and into SQLite."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from control.storage import codec
from control.storage.cache import WatchCache
from control.storage.etcd import restore
from control.storage.etcd.store import EtcdStore
from control.storage.snapshot import REVISION_BUMP
from control.storage.snapshot import restore as restore_sqlite
from control.storage.sqlite import SqliteStore
from control.storage.store import Compacted, FutureRevision, Store, Unavailable
from tests.support.etcd import Etcd, etcd, needs_etcd, open_etcd

pytestmark = needs_etcd

PODS = "/registry/pods/"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Etcd]:
    async with etcd(tmp_path / "etcd") as one:
        yield one


@pytest.fixture
async def store(cluster: Etcd) -> AsyncIterator[EtcdStore]:
    opened = await open_etcd(cluster)
    yield opened
    await opened.close()


# -- snapshots and moving ---------------------------------------------------------------------------------------------
async def fill(store: Store) -> dict[str, bytes]:
    keep = {f"{PODS}default/p{i}": str(i).encode() for i in range(30)}
    for key, value in keep.items():
        await store.create(key, value)
    await store.create(PODS + "default/gone", b"")
    await store.delete(PODS + "default/gone")
    await store.create("/registry/events/default/e", b"e", ttl=600)
    return {**keep, "/registry/events/default/e": b"e"}


async def content(store: Store) -> dict[str, bytes]:
    return {item.key: item.value for item in (await store.list("/registry/")).items}


async def test_a_restore_makes_etcd_what_it_was_and_revisions_go_on(store: EtcdStore, tmp_path: Path) -> None:
    before = await fill(store)
    await store.snapshot(tmp_path / "s.db")
    assert (tmp_path / "s.db").stat().st_mode & 0o777 == 0o600
    await store.delete(f"{PODS}default/p1")
    changed = await store.get(f"{PODS}default/p2")
    assert changed is not None
    await store.update(changed.key, b"changed", changed.revision)
    last = await store.create(PODS + "default/new", b"")
    revision = await restore.restore(store, tmp_path / "s.db")
    assert revision > last.revision
    assert await content(store) == before
    assert 0 < (await store.lifetimes("/registry/events/"))["/registry/events/default/e"] <= 660


async def test_a_cache_over_an_etcd_that_was_replaced_by_an_older_copy_shows_what_that_has(
    cluster: Etcd, store: EtcdStore, tmp_path: Path
) -> None:
    cache, (member,) = WatchCache(store), cluster.members
    pods = cache.resource(PODS, "Pod", "v1")
    task = asyncio.create_task(cache.run())
    await cache.wait_ready()

    async def create(name: str) -> None:
        value = codec.encode({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"}})
        await cache.wait_fresh((await store.create(f"{PODS}default/{name}", value)).revision)

    await create("kept")
    member.kill()
    shutil.copytree(cluster.directory / member.name, tmp_path / "copy")
    member.start()
    await cluster.wait_healthy(member)
    for number in range(20):
        await create(f"lost{number}")
    watcher, before = pods.watch(cache.revision), cache.revision
    member.kill()
    shutil.rmtree(cluster.directory / member.name)
    shutil.copytree(tmp_path / "copy", cluster.directory / member.name)
    member.start()
    await cluster.wait_healthy(member)
    with pytest.raises(Compacted):
        async with asyncio.timeout(20):
            while True:
                await anext(watcher)
    async with asyncio.timeout(20):
        while cache.revision >= before:
            await asyncio.sleep(0.01)
    await create("new")
    assert [entry.key.rpartition("/")[2] for entry in pods.list().entries] == ["kept", "new"]
    with pytest.raises(FutureRevision):
        pods.watch(before)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_nothing_is_restored_under_a_running_server(
    cluster: Etcd, store: EtcdStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store)
    await store.snapshot(tmp_path / "s.db")
    server = await store.create("/registry/masterleases/192.0.2.1", b"{}")
    monkeypatch.setattr(restore, "SERVER_LEASE_SECONDS", 1)
    with pytest.raises(Unavailable, match=r"192\.0\.2\.1.*stop them first"):
        await restore.restore(store, tmp_path / "s.db")
    # One that has been stopped is forgotten, and what a snapshot says about servers does not come back.
    await store.snapshot(tmp_path / "later.db")
    await store.delete(server.key)
    await restore.restore(store, tmp_path / "later.db")
    assert await store.get(server.key) is None


async def test_what_comes_from_sqlite_has_higher_revisions_in_etcd_than_it_ever_had(
    cluster: Etcd, store: EtcdStore, tmp_path: Path
) -> None:
    embedded = await SqliteStore.open(tmp_path / "state.db")
    before, seen = await fill(embedded), await embedded.current_revision()
    await embedded.snapshot(tmp_path / "s.db")
    await embedded.close()
    await restore.restore(store, tmp_path / "s.db", empty=True)
    moved = await open_etcd(cluster)
    try:
        assert await content(moved) == before
        assert min(item.revision for item in (await moved.list("/registry/")).items) > seen + REVISION_BUMP
        with pytest.raises(Compacted):
            await moved.list("/registry/", revision=seen)
        with pytest.raises(Compacted):
            async with aclosing(moved.watch("/registry/", seen)) as watch:
                await asyncio.wait_for(anext(watch), 30)
        item = await moved.get(f"{PODS}default/p1")
        assert item is not None
        after = await moved.update(item.key, b"x", item.revision)
        async with aclosing(moved.watch("/registry/", item.revision)) as watch:
            assert (await asyncio.wait_for(anext(watch), 30)).revision > item.revision
        assert after.revision == await moved.current_revision()
        with pytest.raises(Unavailable, match="already holds"):
            await restore.restore(moved, tmp_path / "s.db", empty=True)
    finally:
        await moved.close()


async def test_a_snapshot_of_etcd_can_be_restored_into_sqlite(store: EtcdStore, tmp_path: Path) -> None:
    before = await fill(store)
    await store.snapshot(tmp_path / "s.db")
    restore_sqlite(tmp_path / "s.db", tmp_path / "state.db", tmp_path)
    embedded = await SqliteStore.open(tmp_path / "state.db")
    try:
        assert await content(embedded) == before
        assert await embedded.current_revision() > await store.current_revision()
    finally:
        await embedded.close()
