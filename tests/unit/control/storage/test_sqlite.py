"""Properties of the SQLite engine: its file, its failures, its snapshots."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from control.storage import compaction, feed, schema, sqlite
from control.storage.compactor import Compactor
from control.storage.snapshot import REVISION_BUMP, restore
from control.storage.sqlite import SqliteStore
from control.storage.store import Compacted, Corrupt, KeyExists, Unavailable
from control.storage.writer import COMMIT_SECONDS
from kube.counters import Histogram
from tests.support.clock import FakeClock, settle

T = TypeVar("T")


async def test_all_files_are_private(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "state.db")
    await store.create("/a", b"1")
    await store.snapshot(tmp_path / "snapshot.db")
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in os.listdir(tmp_path)}
    assert {"state.db", "state.db-wal", "snapshot.db"} <= set(modes)
    assert set(modes.values()) == {0o600}
    await store.close()


async def test_commits_are_counted_and_timed(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "state.db")
    before = samples(COMMIT_SECONDS)
    await store.create("/a", b"1")
    await store.create("/b", b"1")
    after = samples(COMMIT_SECONDS)
    await store.close()
    assert after["count"] == before.get("count", 0) + 2 and after["sum"] > before.get("sum", 0)


def samples(histogram: Histogram) -> dict[str, float]:
    """Return the count and the sum of a histogram without labels."""
    return {each.name.rpartition("_")[2]: each.value for each in histogram.family().samples if not each.labels}


async def test_commits_wait_for_the_disk(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "state.db")
    connection = store._writer._connection
    assert connection is not None
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    await store.close()


async def test_a_file_that_is_no_database_is_named_corrupt_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"not a database at all" * 1000)
    with pytest.raises(Corrupt, match=r"state\.db is damaged"):
        await SqliteStore.open(path)
    assert path.read_bytes().startswith(b"not a database")


async def test_a_damaged_page_is_found_at_start(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = await SqliteStore.open(path)
    for i in range(200):
        await store.create(f"/{i}", b"v" * 1000)
    await store.close()
    content = bytearray(path.read_bytes())
    content[8 * 4096 : 12 * 4096] = b"\xff" * (4 * 4096)
    path.write_bytes(content)
    with pytest.raises(Corrupt, match="restore a snapshot"):
        await SqliteStore.open(path)


async def test_a_format_of_the_future_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await (await SqliteStore.open(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(Corrupt, match="format 99"):
        await SqliteStore.open(path)


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """The folder belongs to the control plane's account, and root restores snapshots into it."""
    (tmp_path / "state.db.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        schema.lock(tmp_path / "state.db")
    assert not (tmp_path / "elsewhere").exists()


async def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = await SqliteStore.open(path)
    with pytest.raises(Unavailable, match="in use by another process"):
        await SqliteStore.open(path)
    await store.close()
    await (await SqliteStore.open(path)).close()


async def test_a_closed_store_refuses_and_ends_its_watches(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "state.db")
    watching = asyncio.ensure_future(anext(store.watch("/", 0), None))
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.wait_for(watching, 10) is None
    for refused in (store.create("/a", b""), store.get("/a"), store.list("/"), store.compact(1)):
        with pytest.raises(Unavailable):
            await refused


async def test_writes_submitted_before_closing_are_answered(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "state.db")
    writes = [asyncio.ensure_future(store.create(f"/{i}", b"")) for i in range(250)]
    await asyncio.sleep(0)
    await store.close()
    assert len({item.revision for item in await asyncio.gather(*writes)}) == 250


async def test_a_failed_commit_is_reported_and_the_store_recovers(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = await SqliteStore.open(path)
    first = await store.create("/a", b"1")
    watch = store.watch("/", first.revision)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        # A trigger stands for the disk that refuses: the statement fails in the middle of the batch.
        other.execute(
            "CREATE TRIGGER full BEFORE INSERT ON history WHEN NEW.key = '/bad'"
            " BEGIN SELECT RAISE(ABORT, 'disk full'); END"
        )
        results = await asyncio.gather(
            *(store.create(key, b"") for key in ("/b", "/bad", "/c")), return_exceptions=True
        )
        assert any(isinstance(result, Unavailable) for result in results)
        with pytest.raises(Unavailable, match="disk full"):
            await store.create("/bad", b"")
        other.execute("DROP TRIGGER full")
    assert await store.get("/bad") is None
    last = await store.create("/bad", b"2")
    assert last.revision > first.revision
    kept = {item.key for item in (await store.list("/")).items}
    reported: list[str] = []
    while "/bad" not in reported:
        reported += [event.key for event in (await asyncio.wait_for(anext(watch), 10)).events]
    assert sorted(reported) == sorted(kept - {"/a"}) and len(reported) == len(set(reported))
    await store.close()


async def test_the_current_revision_is_never_one_of_a_commit_that_failed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = await SqliteStore.open(path)
    first = await store.create("/a", b"1")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TRIGGER full BEFORE INSERT ON history BEGIN SELECT RAISE(ABORT, 'disk full'); END")
        with pytest.raises(Unavailable):
            await store.create("/b", b"")
        other.execute("DROP TRIGGER full")
    with pytest.raises(KeyExists):
        await store.create("/a", b"")
    current = await store.current_revision()
    assert current == first.revision == (await store.list("/", revision=current)).revision
    await store.compact(current)
    assert (await store.create("/b", b"")).revision > current
    await store.close()


async def test_a_watch_that_lags_behind_reads_on_from_the_file(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "state.db")
    async with aclosing(feed.Subscription(store._feed, "/", 0, previous=False, backlog=5)) as watch:
        revisions = [(await store.create(f"/{i}", b"")).revision for i in range(40)]
        seen: list[int] = []
        while len(seen) < 40:
            seen += [event.revision for event in (await asyncio.wait_for(anext(watch), 10)).events]
        assert seen == revisions
        live = await store.create("/live", b"")
        batch = await asyncio.wait_for(anext(watch), 10)
        assert [event.revision for event in batch.events] == [live.revision]
    await store.close()


async def test_the_sweep_removes_what_is_superseded_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    store = await SqliteStore.open(path)
    kept = await store.create("/kept", b"1")
    item = await store.create("/a", b"0")
    for i in range(50):
        item = await store.update("/a", str(i).encode(), item.revision)
    await store.create("/b", b"")
    gone = await store.delete("/b")
    await store.compact(gone.revision)
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        while compaction.sweep(connection, step=7):
            pass
        rows = connection.execute("SELECT revision FROM history ORDER BY revision").fetchall()
    assert [row[0] for row in rows] == [kept.revision, item.revision]


async def test_the_sweep_after_a_restore_takes_steps_by_rows_not_by_revisions(tmp_path: Path) -> None:
    path, saved = tmp_path / "state.db", tmp_path / "saved.db"
    store = await SqliteStore.open(path)
    for i in range(20):
        await store.create(f"/{i}", b"")
    await store.delete("/0")
    await store.snapshot(saved)
    await store.close()
    restore(saved, path, tmp_path)
    steps = 1
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        while compaction.sweep(connection, step=5):
            steps += 1
            assert steps <= 7
        assert schema.mark(connection, "swept") == schema.mark(connection, "compacted")
        assert connection.execute("SELECT count(*) FROM history").fetchone() == (19,)
    assert steps >= 4


async def test_an_older_copy_of_the_database_hands_out_no_revision_again(tmp_path: Path) -> None:
    path, old = tmp_path / "state.db", tmp_path / "old.db"
    store = await SqliteStore.open(path)
    await store.create("/kept", b"")
    await store.snapshot(old)
    for i in range(5):
        lost = await store.create(f"/lost{i}", b"")
    await store.close()
    for leftover in ("-wal", "-shm"):
        path.with_name(path.name + leftover).unlink(missing_ok=True)
    shutil.copy(old, path)
    store = await SqliteStore.open(path)
    assert (await store.create("/new", b"")).revision > lost.revision + 1
    for seen in range(1, lost.revision + 1):
        with pytest.raises(Compacted):
            await anext(store.watch("/", seen))
    await store.close()


async def test_a_restart_after_kill_9_compacts_nothing(tmp_path: Path) -> None:
    path, copy = tmp_path / "state.db", tmp_path / "copy"
    copy.mkdir()
    store = await SqliteStore.open(path)
    first = await store.create("/a", b"")
    last = await store.create("/b", b"")
    for suffix in ("", "-wal", "-shm", ".revision"):  # what a process killed now leaves
        shutil.copy(path.with_name(path.name + suffix), copy)
    await store.close()
    store = await SqliteStore.open(copy / "state.db")
    assert await store.current_revision() == last.revision
    assert [event.key for event in (await anext(store.watch("/", first.revision))).events] == ["/b"]
    await store.close()


async def test_a_watch_whose_previous_states_are_compacted_while_it_reads_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await SqliteStore.open(tmp_path / "state.db")
    first = await store.create("/a", b"")
    await store.delete("/a")
    last = await store.create("/b", b"")
    read = store._feed.reader.read

    async def swept(question: Callable[[sqlite3.Connection], T]) -> T:
        monkeypatch.setattr(store._feed.reader, "read", read)
        answer = await read(question)  # the changes; the states before them are read next
        await store.compact(last.revision)
        while await read(lambda c: schema.mark(c, "swept")) < last.revision:
            await asyncio.sleep(0.005)
        return answer

    monkeypatch.setattr(store._feed.reader, "read", swept)
    with pytest.raises(Compacted):
        await anext(store.watch("/", first.revision, previous=True))
    await store.close()


async def test_a_restored_snapshot_has_the_data_and_higher_revisions_than_ever_seen(tmp_path: Path) -> None:
    path, saved = tmp_path / "state.db", tmp_path / "saved.db"
    store = await SqliteStore.open(path)
    old = await store.create("/old", b"1")
    await store.snapshot(saved)
    lost = await store.create("/lost", b"1")
    with pytest.raises(Unavailable):
        restore(saved, path, tmp_path)
    await store.close()
    assert restore(saved, path, tmp_path) == lost.revision + REVISION_BUMP
    store = await SqliteStore.open(path)
    assert [item.key for item in (await store.list("/")).items] == ["/old"]
    assert await store.get("/old") == old
    assert (await store.create("/new", b"")).revision == lost.revision + REVISION_BUMP + 1
    with pytest.raises(Compacted):
        await anext(store.watch("/", lost.revision))
    await store.close()


async def test_a_damaged_snapshot_is_not_restored(tmp_path: Path) -> None:
    path, saved = tmp_path / "state.db", tmp_path / "saved.db"
    store = await SqliteStore.open(path)
    await store.create("/a", b"1")
    await store.close()
    saved.write_bytes(b"garbage" * 1000)
    with pytest.raises(Corrupt):
        restore(saved, path, tmp_path)
    store = await SqliteStore.open(path)
    assert await store.get("/a") is not None
    await store.close()


async def test_the_compactor_keeps_five_minutes(tmp_path: Path) -> None:
    store, clock = await SqliteStore.open(tmp_path / "state.db"), FakeClock()
    old = await store.create("/a", b"")
    task = asyncio.create_task(Compactor(store, clock).run())
    await settle()
    new = await store.create("/b", b"")
    for expected in (old.revision, new.revision):
        await clock.advance(299)
        async with asyncio.timeout(10):
            await clock.advance(61)
            while await store.compacted_revision() < expected:
                await asyncio.sleep(0.005)
                await clock.advance(30)
        # The compactor's own records have revisions, too.
        assert expected <= await store.compacted_revision() <= expected + 1
    task.cancel()
    await store.close()


async def test_a_server_that_is_restarted_more_often_than_it_compacts_compacts_all_the_same(tmp_path: Path) -> None:
    """Otherwise history grows until the disk is full, and then cannot be compacted any more."""
    path, clock, old = tmp_path / "state.db", FakeClock(), 0
    for number in range(10):
        store = await SqliteStore.open(path)
        task = asyncio.create_task(Compactor(store, clock).run())
        item = await store.create(f"/{number}", b"")
        old = old or item.revision
        async with asyncio.timeout(10):
            for _ in range(3):
                await clock.sleeping()
                await clock.advance(30)
            await clock.sleeping()
        task.cancel()
        compacted = await store.compacted_revision()
        await store.close()
    # What is younger than five minutes is kept.
    assert old <= compacted < item.revision - 3


async def test_the_compactor_bounds_how_much_is_kept(tmp_path: Path) -> None:
    store, clock = await SqliteStore.open(tmp_path / "state.db"), FakeClock()
    task = asyncio.create_task(Compactor(store, clock, max_revisions=10).run())
    await settle()
    for i in range(30):
        last = await store.create(f"/{i}", b"")
    async with asyncio.timeout(10):
        while await store.compacted_revision() < last.revision - 10:
            await clock.advance(30)
            await asyncio.sleep(0.005)
    task.cancel()
    await store.close()


async def test_writes_beyond_those_that_may_wait_for_a_hung_disk_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "MAX_QUEUED_WRITES", 10)
    store = await SqliteStore.open(tmp_path / "state.db")
    disk, commit = threading.Event(), store._writer._commit

    def hung(writes: Any) -> None:
        disk.wait(20)
        commit(writes)

    monkeypatch.setattr(store._writer, "_commit", hung)
    first = asyncio.create_task(store.create("/first", b"1"))
    while store._writer.waiting or not store._writer._queue.empty():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    waiting = [asyncio.create_task(store.create(f"/{number}", b"1")) for number in range(20)]
    refused, _ = await asyncio.wait(waiting, timeout=1, return_when=asyncio.FIRST_EXCEPTION)
    disk.set()
    outcomes = await asyncio.gather(first, *waiting, return_exceptions=True)
    assert sum(isinstance(each, Unavailable) for each in outcomes) == 10 and refused
    assert len((await store.list("/")).items) == 11
    await store.close()


async def test_the_compactor_writes_nothing_while_nothing_else_is_written(tmp_path: Path) -> None:
    store, clock = await SqliteStore.open(tmp_path / "state.db"), FakeClock()
    task = asyncio.create_task(Compactor(store, clock).run())
    last = await store.create("/a", b"")
    async with asyncio.timeout(20):
        while await store.compacted_revision() < last.revision:
            await clock.advance(30)
            await asyncio.sleep(0.005)
        for _ in range(30):  # the record that it wrote itself is no reason for another one
            await clock.advance(300)
            await asyncio.sleep(0.005)
        before = await store.current_revision()
        for _ in range(10):
            await clock.advance(300)
            await asyncio.sleep(0.005)
    assert await store.current_revision() == before
    task.cancel()
    await store.close()


async def test_keys_expire_by_the_clock_of_the_store(tmp_path: Path) -> None:
    clock = FakeClock()
    store = await SqliteStore.open(tmp_path / "state.db", clock)
    await store.create("/late", b"", ttl=3600)
    await store.create("/soon", b"", ttl=60)
    await clock.advance(59)
    assert await store.get("/soon") is not None
    await clock.advance(2)
    async with asyncio.timeout(10):
        while await store.get("/soon") is not None:
            await asyncio.sleep(0.005)
    assert await store.get("/late") is not None
    await store.close()
