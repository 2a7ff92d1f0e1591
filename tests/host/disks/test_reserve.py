"""Disks that history or other programs have filled: the engine gives its reserve up, and recovers by itself."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from control.storage import full_disk, reserve
from control.storage.sqlite import SqliteStore
from control.storage.store import Item, NoSpace, StoreError, Unavailable
from kube.process import run
from tests.support.disks import KI, MI, SmallDisk, ext4_disk, small_disk

DISK, RESERVE = 128 * MI, 16 * MI
SIZE = 30 * KI
RECOVERY_SECONDS = 10.0
"""Documented limit for a disk of this size (docs/storage.md)."""


@pytest.fixture(autouse=True)
def real_reserve(_small_reserve: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve, "MAX_BYTES", RESERVE)


@pytest.fixture(params=["ext4", "tmpfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    made = ext4_disk(tmp_path / "small", DISK) if request.param == "ext4" else small_disk(tmp_path / "small", DISK)
    with made as disk:
        yield disk


def held(path: Path) -> bool:
    """Return whether the reserve of a database is really on the disk."""
    found = path.with_name(path.name + ".reserve").stat()
    return found.st_size == min(found.st_blocks * 512, found.st_size) > 0


class Objects:
    """Few objects that are updated again and again, and what was acknowledged of them."""

    def __init__(self, store: SqliteStore, number: int = 8) -> None:
        self.store, self.names = store, [f"/k{n}" for n in range(number)]
        self.items: dict[str, Item] = {}
        self.count = 0

    async def create(self) -> None:
        for name in self.names:
            self.items[name] = await self.store.create(name, b"0")

    async def update(self) -> list[StoreError]:
        """Update all at once; return the errors."""

        async def one(name: str) -> None:
            self.count += 1
            value = b"%d %s" % (self.count, b"x" * SIZE)
            self.items[name] = await self.store.update(name, value, self.items[name].revision)

        found = await asyncio.gather(*map(one, self.names), return_exceptions=True)
        errors = [error for error in found if error is not None]
        assert all(isinstance(error, NoSpace) for error in errors), errors
        return [error for error in errors if isinstance(error, StoreError)]

    async def fill(self) -> StoreError:
        while True:
            if errors := await self.update():
                return errors[0]

    async def check(self, store: SqliteStore) -> None:
        """All that was acknowledged is there, and nothing that was refused."""
        found = {item.key: item for item in (await store.list("/")).items}
        assert found == self.items


async def seconds_until_written(objects: Objects) -> float:
    start = time.monotonic()
    async with asyncio.timeout(30):
        while await objects.update():
            await asyncio.sleep(0.02)
    return time.monotonic() - start


async def test_a_disk_that_history_alone_has_filled_recovers_by_itself_and_again(disk: SmallDisk) -> None:
    path = disk.path / "state.db"
    store = await SqliteStore.open(path)
    objects = Objects(store)
    await objects.create()
    assert held(path)
    for _ in range(3):
        error = await objects.fill()
        assert str(error).startswith("storage cannot commit: database or disk is full")
        assert store.check_disk() is not None
        await objects.check(store)
        assert await seconds_until_written(objects) < RECOVERY_SECONDS
        assert store.check_disk() is None and held(path)
        await objects.check(store)
    # Half of history is enough: a watcher that is a little behind goes on.
    last = max(item.revision for item in objects.items.values())
    async with aclosing(store.watch("/", last - 100)) as watch:
        assert (await asyncio.wait_for(anext(watch), 10)).events[0].revision == last - 99
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    store = await SqliteStore.open(path)
    await objects.check(store)
    await store.close()


async def test_a_disk_that_others_have_filled_lets_delete_only_until_they_make_space(
    disk: SmallDisk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_disk, "RETRY_SECONDS", 0.1)
    path = disk.path / "state.db"
    store = await SqliteStore.open(path)
    objects = Objects(store, 200)
    await objects.create()
    await objects.update()
    disk.fill()
    await objects.fill()
    async with asyncio.timeout(30):
        while "only deletions are possible" not in (store.check_disk() or ""):
            await asyncio.sleep(0.01)
    for name in objects.names[10:]:
        await store.delete(name)
        del objects.items[name]
    await asyncio.sleep(2)  # twenty attempts
    objects.names = objects.names[:10]
    assert len(await objects.update()) == 10
    with pytest.raises(NoSpace):
        await store.create("/new", b"")
    await objects.check(store)
    assert not held(path)
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("control.storage")]
    assert len(lines) <= 3, "the engine tries again and again, and says so"
    disk.free()
    assert await seconds_until_written(objects) < 2
    assert held(path) and store.check_disk() is None
    await objects.check(store)
    await store.close()


async def test_a_restart_while_the_disk_is_full_changes_nothing_but_goes_on_with_recovery(disk: SmallDisk) -> None:
    path = disk.path / "state.db"
    store = await SqliteStore.open(path)
    objects = Objects(store)
    await objects.create()
    disk.fill(leave=4 * MI)
    await objects.fill()
    await store.close()
    store = objects.store = await SqliteStore.open(path)
    assert "only deletions are possible" in (store.check_disk() or "")
    assert len(await objects.update()) == len(objects.names)
    await store.delete("/k0")
    objects.names.remove("/k0")
    del objects.items["/k0"]
    await objects.check(store)
    disk.free()
    assert await seconds_until_written(objects) < 3
    assert held(path)
    await store.close()


KILLED = """
import asyncio, os, sys
from pathlib import Path
from control.storage.sqlite import SqliteStore

async def main():
    store = await SqliteStore.open(Path(sys.argv[1]))
    for number in range(100):
        await store.create(f"/k{number}", b"x" * 20000)
    os._exit(0)

asyncio.run(main())
"""


async def test_a_server_that_was_killed_starts_on_a_disk_without_space_for_its_log(disk: SmallDisk) -> None:
    path = disk.path / "state.db"
    await run([sys.executable, "-c", KILLED, str(path)])
    assert path.with_name("state.db-wal").stat().st_size > MI
    disk.fill()
    store = await SqliteStore.open(path)
    assert len((await store.list("/")).items) == 100 and not held(path)
    with pytest.raises(NoSpace):
        await store.create("/new", b"")
    await store.delete("/k0")
    disk.free()
    async with asyncio.timeout(10):
        while store.check_disk():
            await asyncio.sleep(0.02)
    await store.create("/new", b"")
    assert held(path)
    await store.close()


async def test_a_server_without_reserve_does_not_start_on_a_full_disk_and_reports_it(disk: SmallDisk) -> None:
    path = disk.path / "state.db"
    await (await SqliteStore.open(path)).close()
    path.with_name("state.db.reserve").unlink()
    disk.fill()
    with pytest.raises(Unavailable, match=r"state\.db"):
        await SqliteStore.open(path)
    disk.free()
    await (await SqliteStore.open(path)).close()
    assert held(path)
