"""The reserve of disk space and the return of unused pages' blocks, on file systems of every kind."""

from __future__ import annotations

import errno
import os
import random
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from control.storage import compaction, free_pages, recovery, reserve, schema
from control.storage.database_file import DatabaseFile
from control.storage.reserve import Reserve
from control.storage.sqlite import SqliteStore
from control.storage.store import NoSpace

MI = 1 << 20


def blocks(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def beside(path: Path) -> Path:
    return path.with_name("state.db.reserve")


def test_the_reserve_takes_blocks_and_gives_them_up_and_the_next_process_sees_that(path: Path, beside: Path) -> None:
    with closing(Reserve(path)) as found:
        assert not found.missing and blocks(beside) >= beside.stat().st_size == found.size == MI
        assert beside.stat().st_mode & 0o777 == 0o600
        assert found.release() and found.missing and blocks(beside) == 0
        assert not found.release(), "it was given up before"
        assert beside.stat().st_size == 0
        assert found.allocate() and not found.missing and blocks(beside) >= MI


def test_a_copy_of_the_reserve_without_blocks_is_allocated(path: Path, beside: Path) -> None:
    with open(beside, "wb") as file:
        file.truncate(MI)
    with closing(Reserve(path)) as found:
        assert not found.missing and blocks(beside) >= MI == beside.stat().st_size


def no_space(number: int) -> Any:
    def refuse(descriptor: int, offset: int, length: int) -> None:
        os.pwrite(descriptor, b"x" * 4096, 0)  # it takes what there is
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_reserve_for_which_there_is_no_space_takes_none(
    path: Path, beside: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(reserve.os, "posix_fallocate", no_space(number))
    with closing(Reserve(path)) as found:
        assert found.missing and not found.allocate() and blocks(beside) == 0


def test_a_reserve_is_not_attempted_without_space_for_a_log_besides(
    path: Path, beside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attempted(*_: object) -> None:
        raise AssertionError("others would meet a full disk meanwhile")

    free = SimpleNamespace(f_blocks=10**6, f_frsize=4096, f_bfree=2 * MI // 4096 - 1, f_bavail=0)
    monkeypatch.setattr(reserve.os, "fstatvfs", lambda descriptor: free)
    monkeypatch.setattr(reserve.os, "posix_fallocate", attempted)
    with closing(Reserve(path)) as found:
        assert found.missing


def test_a_file_system_that_cannot_allocate_has_no_reserve_and_takes_writes(
    path: Path, beside: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reserve.os, "posix_fallocate", no_space(errno.EOPNOTSUPP))
    with closing(Reserve(path)) as found:
        assert not found.missing and not found.release()
    assert "no disk space can be reserved" in caplog.text


def test_a_file_system_that_allocates_nothing_gets_bytes_that_it_cannot_compress(
    path: Path, beside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reserve.os, "posix_fallocate", lambda descriptor, offset, length: None)
    with closing(Reserve(path)) as found:
        assert not found.missing and blocks(beside) >= MI
    assert len(set(beside.read_bytes())) == 256


def test_a_small_disk_gives_an_eighth(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = SimpleNamespace(f_blocks=1000, f_frsize=4096, f_bfree=1000, f_bavail=1000)
    monkeypatch.setattr(reserve.os, "fstatvfs", lambda descriptor: small)
    with closing(Reserve(path)) as found:
        assert found.size == 125 * 4096


async def test_a_store_whose_reserve_is_missing_carries_out_deletions_only(
    path: Path, beside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await SqliteStore.open(path)
    kept, item = await store.create("/kept", b"1"), await store.create("/a", b"1")
    await store.close()
    monkeypatch.setattr(reserve.Reserve, "allocate", lambda self: False)
    os.truncate(beside, 0)
    store = await SqliteStore.open(path)
    for refused in (
        store.create("/new", b""),
        store.create("/kept", b""),
        store.update("/kept", b"2", kept.revision),
        store.update("/absent", b"2", 1),
    ):
        with pytest.raises(NoSpace, match="only deletions are possible until 2 MiB are free"):
            await refused
    assert (await store.delete("/a", item.revision)).revision == item.revision + 1
    assert [found.key for found in (await store.list("/")).items] == ["/kept"]
    await store.close()


@pytest.mark.parametrize("seed", range(6))
async def test_the_blocks_of_unused_pages_go_and_nothing_else(path: Path, seed: int) -> None:
    chance = random.Random(seed)
    store = await SqliteStore.open(path)
    items = {}
    for _ in range(400):
        name = f"/{chance.randrange(40)}"
        value = chance.randbytes(chance.choice([10, 1000, 5000, 70_000]))
        if name not in items:
            items[name] = await store.create(name, value)
        elif chance.random() < 0.1:
            await store.delete(items.pop(name).key)
        else:
            items[name] = await store.update(name, value, items[name].revision)
    await store.compact(await store.current_revision())
    await store.close()
    with closing(DatabaseFile(path)) as file, closing(schema.connect(path)) as connection:
        while compaction.sweep(connection):
            pass
        before = blocks(path)
        assert free_pages.free_unused_pages(connection, file, path)
        (unused,) = connection.execute("PRAGMA freelist_count").fetchone()
        chain = unused // 1000 + 1
        assert unused > 100 and before - blocks(path) >= (unused - chain) * 4096 * 0.9
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    store = await SqliteStore.open(path)
    assert {item.key: item for item in (await store.list("/")).items} == items
    for number in range(100):  # the holes are used again
        items[f"/new{number}"] = await store.create(f"/new{number}", chance.randbytes(20_000))
    await store.close()
    store = await SqliteStore.open(path)
    assert {item.key: item for item in (await store.list("/")).items} == items
    await store.close()


async def test_no_blocks_are_returned_while_a_read_needs_the_log_or_others_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "BUSY_TIMEOUT_MS", 50)
    store = await SqliteStore.open(path)
    await store.create("/a", b"x" * 100_000)
    await store.delete("/a")
    with closing(DatabaseFile(path)) as file, closing(schema.connect(path)) as connection:
        with closing(schema.connect(path, read_only=True)) as reading:
            reading.execute("BEGIN")
            reading.execute("SELECT * FROM history").fetchone()
            await store.create("/b", b"")
            before = blocks(path)
            assert not free_pages.free_unused_pages(connection, file, path)
            assert blocks(path) >= before
            reading.execute("COMMIT")
        with closing(schema.connect(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert not free_pages.free_unused_pages(connection, file, path)
    await store.close()


def test_a_damaged_list_of_unused_pages_frees_nothing(path: Path) -> None:
    schema.prepare(path)
    with closing(schema.connect(path)) as connection:
        connection.execute("INSERT INTO history VALUES (1, '/a', 1, 0, 0, NULL, zeroblob(100000))")
        connection.execute("DELETE FROM history")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        content = bytearray(path.read_bytes())
        chain = int.from_bytes(content[32:36], "big")
        content[(chain - 1) * 4096 + 8 : (chain - 1) * 4096 + 12] = (10**6).to_bytes(4, "big")
        path.write_bytes(content)
        before = blocks(path)
        with closing(DatabaseFile(path)) as file, pytest.raises(free_pages.FreelistDamaged):
            free_pages.free_unused_pages(connection, file, path)
        assert blocks(path) == before
