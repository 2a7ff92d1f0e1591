"""The store in memory: its file, the times of its keys, and a watch that compaction overtakes."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from control.storage.memory import MemoryStore
from control.storage.sqlite import SqliteStore
from control.storage.store import Compacted
from tests.support.clock import FakeClock


async def test_its_snapshot_is_a_database_of_the_sqlite_engine(tmp_path: Path) -> None:
    store, path = MemoryStore(), tmp_path / "state.db"
    first = await store.create("/a", b"1")
    await store.create("/b", b"2")
    changed = await store.update("/a", b"3", first.revision)
    await store.delete("/b")
    short = await store.create("/short", b"5", ttl=100)
    await store.snapshot(path)
    assert path.stat().st_mode & 0o777 == 0o600 and os.listdir(tmp_path) == ["state.db"]
    saved = await SqliteStore.open(path)
    try:
        assert list((await saved.list("/")).items) == [changed, short]
        assert (await saved.create("/c", b"4")).revision == short.revision + 1
    finally:
        await saved.close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT key FROM history WHERE expires IS NOT NULL").fetchall() == [("/short",)]


async def test_a_key_with_a_time_to_live_goes_at_the_clocks_time() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    kept = await store.create("/kept", b"1")
    await store.create("/short", b"1", ttl=10)
    watch = store.watch("/", kept.revision + 1)
    await clock.advance(9)
    assert await store.get("/short") is not None
    await clock.advance(2)
    assert await store.get("/short") is None and await store.get("/kept") == kept
    assert [(event.type, event.key) for event in (await anext(watch)).events] == [("DELETED", "/short")]
    await store.close()


async def test_a_watch_that_compaction_overtakes_fails_and_others_go_on() -> None:
    store = MemoryStore()
    for number in range(10):
        await store.create(f"/{number}", b"")
    old, new = store.watch("/", 2), store.watch("/", 8)
    await store.compact(8)
    with pytest.raises(Compacted):
        await anext(old)
    assert [event.key for event in (await anext(new)).events] == ["/8", "/9"]
    await store.close()
    with pytest.raises(StopAsyncIteration):
        await anext(new)


async def test_a_state_is_loaded_with_its_revisions_and_lifetimes() -> None:
    store, clock = MemoryStore(), FakeClock()
    first = await store.create("/a", b"1")
    await store.update("/a", b"2", first.revision)
    await store.create("/short", b"3", ttl=10)
    await store.delete((await store.create("/gone", b"")).key)
    loaded = MemoryStore(clock)
    loaded.load(*store.state())
    assert await loaded.list("/") == await store.list("/")
    assert await loaded.compacted_revision() == await store.current_revision() == await loaded.current_revision()
    later = await loaded.create("/later", b"")
    assert later.revision == await store.current_revision() + 1
    watch = loaded.watch("/", later.revision)
    await clock.advance(11)
    assert [(event.type, event.key) for event in (await anext(watch)).events] == [("DELETED", "/short")]
    await loaded.close()
    await store.close()
