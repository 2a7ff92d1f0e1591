"""The embedded engine on full and failing disks: acknowledged writes remain, and visible writes are durable."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from control.storage import writer
from control.storage.sqlite import SqliteStore
from control.storage.store import Event, NoSpace, StoreError, Unavailable
from kube.process import run
from tests.support.disks import KI, MI, FailingDisk, SmallDisk, ext4_disk, failing_disk, small_disk

ROOT = Path(__file__).parents[3]
LARGE = b"x" * (20 * KI)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0.05)


@pytest.fixture(params=["ext4", "tmpfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    made = ext4_disk(tmp_path / "small") if request.param == "ext4" else small_disk(tmp_path / "small", 8 * MI)
    with made as disk:
        yield disk


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[FailingDisk]:
    with failing_disk(tmp_path) as disk:
        yield disk


async def keys(store: SqliteStore) -> set[str]:
    return {item.key for item in (await store.list("/")).items}


async def write_until_it_fails(store: SqliteStore, prefix: str) -> tuple[set[str], StoreError]:
    """Return what was acknowledged, and the error of the first write that was not."""
    acknowledged: set[str] = set()
    while True:
        key = f"/{prefix}{len(acknowledged)}"
        try:
            acknowledged.add((await store.create(key, LARGE)).key)
        except StoreError as error:
            return acknowledged, error


async def write_once_it_works(store: SqliteStore, key: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await store.create(key, LARGE)
            except (NoSpace, Unavailable):
                continue
            return


async def take(store: SqliteStore, last: str) -> list[Event]:
    """Return all events up to the one of a key."""
    watch = store.watch("/", 0)
    events: list[Event] = []
    async with asyncio.timeout(30):
        while not events or events[-1].key != last:
            events += (await anext(watch)).events
    await watch.aclose()
    return events


async def test_a_full_disk_loses_no_acknowledged_write_and_writes_go_on_once_there_is_space(disk: SmallDisk) -> None:
    path = disk.path / "state.db"
    store = await SqliteStore.open(path)
    before = {(await store.create("/first", b"1")).key}
    disk.fill(leave=400 * KI)
    watching = asyncio.create_task(take(store, "/last"))
    written, error = await write_until_it_fails(store, "k")
    before |= written
    assert isinstance(error, NoSpace) and "database or disk is full" in str(error)
    assert str(store.check_disk()).startswith(str(error))
    assert await keys(store) == before, "a write that was refused is shown"
    assert await store.get("/first") is not None
    disk.free()
    await write_once_it_works(store, "/last")
    assert store.check_disk() is None
    assert {event.key for event in await watching} == await keys(store) == before | {"/last"}
    await store.close()
    again = await SqliteStore.open(path)
    assert await keys(again) == before | {"/last"}
    await again.close()


async def test_a_server_that_nobody_writes_to_notices_by_itself_that_there_is_space(disk: SmallDisk) -> None:
    store = await SqliteStore.open(disk.path / "state.db")
    disk.fill()
    await write_until_it_fails(store, "k")
    disk.free()
    async with asyncio.timeout(30):
        while store.check_disk() is not None:
            await asyncio.sleep(0.01)
    await store.close()


@pytest.mark.parametrize("read", [False, True], ids=["unread", "read"])
async def test_a_write_whose_sync_failed_is_neither_acknowledged_nor_shown(
    failing: FailingDisk, tmp_path: Path, read: bool
) -> None:
    store = await SqliteStore.open(failing.path / "state.db")
    # So much that the log cannot go into the database without new blocks.
    acknowledged = {(await store.create(f"/a{i}", LARGE)).key for i in range(8)}
    if read:
        await keys(store)
    failing.fail()
    for attempt in range(2):
        with pytest.raises(Unavailable, match="storage cannot commit: disk I/O error"):
            await store.create(f"/unknown{attempt}", LARGE)
        shown = await keys(store)
        there = tmp_path / f"power-cut-{attempt}"
        there.mkdir()
        durable = await SqliteStore.open(failing.copy_after_power_cut(there) / "state.db")
        assert acknowledged <= await keys(durable), "what was acknowledged was lost"
        assert shown <= await keys(durable), "what was shown was lost"
        await durable.close()
    failing.heal()
    await write_once_it_works(store, "/last")
    acknowledged.add("/last")
    (tmp_path / "healed").mkdir()
    durable = await SqliteStore.open(failing.copy_after_power_cut(tmp_path / "healed") / "state.db")
    assert acknowledged <= await keys(store) == await keys(durable)
    await durable.close()
    await store.close()


UNSYNCED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA synchronous = OFF")
connection.execute("INSERT INTO history VALUES (100, '/unsynced', 100, 0, 0, NULL, zeroblob(20000))")
os._exit(0)
"""


async def test_what_a_killed_process_had_not_synced_is_shown_only_once_it_is_durable(
    failing: FailingDisk, tmp_path: Path
) -> None:
    path = failing.path / "state.db"
    store = await SqliteStore.open(path)
    await store.create("/first", b"1")
    await store.close()
    await run([sys.executable, "-c", UNSYNCED, str(path)])
    failing.fail()
    with pytest.raises(Unavailable, match="disk I/O error"):
        await SqliteStore.open(path)
    failing.heal()
    store = await SqliteStore.open(path)
    assert await keys(store) == {"/first", "/unsynced"}
    (tmp_path / "power-cut").mkdir()
    durable = await SqliteStore.open(failing.copy_after_power_cut(tmp_path / "power-cut") / "state.db")
    assert await keys(durable) == {"/first", "/unsynced"}
    await durable.close()
    await store.close()
