"""The file with the newest revision next to the database: late, torn, ahead of the database, or not writable."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from control.storage import high_water
from control.storage.high_water import HighWaterMark
from control.storage.sqlite import SqliteStore
from control.storage.store import Compacted, Unavailable


class Disk:
    """Stands between the mark and the kernel: its writes and reads fail while told so, or write a part."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error, self.part = 0, 0
        self._write, self._read = os.pwrite, os.pread
        monkeypatch.setattr(high_water.os, "pwrite", self.write)
        monkeypatch.setattr(high_water.os, "pread", self.read)

    def write(self, descriptor: int, data: bytes, offset: int) -> int:
        if self.error:
            if self.part:
                self._write(descriptor, data[: self.part], offset)
            raise OSError(self.error, os.strerror(self.error))
        return self._write(descriptor, data, offset)

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        return self._read(descriptor, size, offset)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def beside(path: Path) -> Path:
    return path.with_name(path.name + ".revision")


def noted(path: Path) -> int:
    with closing(HighWaterMark(path)) as mark:
        return mark.read()


async def revision_of(path: Path) -> int:
    """Return the revision that a store opens with."""
    store = await SqliteStore.open(path)
    try:
        return await store.current_revision()
    finally:
        await store.close()


async def written(path: Path, number: int) -> int:
    """Write so often; return the newest revision acknowledged."""
    store = await SqliteStore.open(path)
    for _ in range(number):
        last = await store.create(f"/{await store.current_revision()}", b"")
    await store.close()
    return last.revision


def test_a_new_mark_is_nothing_and_what_is_noted_is_read_again(path: Path) -> None:
    mark = HighWaterMark(path)
    assert mark.read() == 0
    for revision in (1, 999, 1_000_000_000_007):
        mark.record(revision)
        assert mark.read() == revision
    mark.close()
    assert beside(path).stat().st_mode & 0o777 == 0o600
    with closing(HighWaterMark(path)) as again:
        assert again.read() == 1_000_000_000_007


def test_a_mark_that_an_earlier_version_wrote_is_read(path: Path) -> None:
    beside(path).write_bytes(b"%020d" % 42)
    with closing(HighWaterMark(path)) as mark:
        assert mark.read() == 42


@pytest.mark.parametrize("left", [b"", b"0" * 19, b"\0" * 20, b"12ab" * 5, "٣".encode() * 10])
def test_a_mark_that_was_not_written_whole_is_none(path: Path, left: bytes) -> None:
    beside(path).write_bytes(left)
    with closing(HighWaterMark(path)) as mark:
        assert mark.read() == 0


async def test_a_database_without_its_mark_goes_on_from_what_it_has_itself(path: Path) -> None:
    last = await written(path, 3)
    beside(path).unlink()
    assert await revision_of(path) == last
    assert await written(path, 1) == last + 1
    assert noted(path) == last + 1


async def test_a_process_killed_between_commit_and_mark_loses_and_reuses_nothing(path: Path, disk: Disk) -> None:
    first = await written(path, 2)
    disk.error = errno.EIO  # the commits stand, and no mark is written after them
    last = await written(path, 3)
    disk.error = 0
    assert noted(path) == first < last
    assert await revision_of(path) == last
    store = await SqliteStore.open(path)
    assert [event.revision for event in (await anext(store.watch("/", first))).events] == list(
        range(first + 1, last + 1)
    )
    await store.close()
    assert await written(path, 1) == last + 1


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS])
async def test_a_mark_that_cannot_be_written_fails_no_write_and_is_logged_once(
    path: Path, disk: Disk, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    store = await SqliteStore.open(path)
    disk.error = number
    for key in "abc":
        await store.create(f"/{key}", b"")
    output = [record.message for record in caplog.records if "cannot be written next to" in record.message]
    assert len(output) == 1 and os.strerror(number) in output[0]
    assert store.check_disk() is None
    disk.error = 0
    last = await store.create("/d", b"")
    assert noted(path) == last.revision
    disk.error = number
    await store.create("/e", b"")
    assert len([record for record in caplog.records if "cannot be written next to" in record.message]) == 2, "it is new"
    await store.close()


async def test_an_unreadable_mark_is_ignored_and_logged(
    path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    last = await written(path, 2)
    disk.error = errno.EIO
    assert await revision_of(path) == last
    assert any("cannot be read" in record.message for record in caplog.records)


async def test_a_store_whose_mark_cannot_be_opened_does_not_start(path: Path) -> None:
    """It could not tell an older copy of the database, now or later."""
    await written(path, 1)
    beside(path).unlink()
    beside(path).mkdir()
    with pytest.raises(Unavailable):
        await SqliteStore.open(path)
    beside(path).rmdir()
    assert await revision_of(path) == 1


async def test_a_mark_torn_in_the_middle_of_a_write_is_never_above_what_was_acknowledged(
    path: Path, disk: Disk
) -> None:
    """Digits of two numbers of one length: the part that was written is the newer's, the rest the older's."""
    last = await written(path, 99)
    store = await SqliteStore.open(path)
    disk.error = errno.EIO
    for disk.part in range(1, 40):
        newest = await store.create(f"/torn{disk.part}", b"")
        disk.error = 0
        assert last <= noted(path) <= newest.revision
        disk.error = errno.EIO
    disk.error = 0
    await store.close()
    assert await revision_of(path) == newest.revision == last + 39


async def test_a_database_older_than_its_mark_gives_no_revision_again_also_after_a_second_start(
    path: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old.db"
    store = await SqliteStore.open(path)
    await store.create("/kept", b"")
    await store.snapshot(old)
    for number in range(5):
        lost = await store.create(f"/lost{number}", b"")
    await store.close()
    for leftover in ("-wal", "-shm"):
        path.with_name(path.name + leftover).unlink(missing_ok=True)
    shutil.copy(old, path)
    for _ in range(2):  # the first is ended before it wrote anything
        assert await revision_of(path) == lost.revision + 1
    store = await SqliteStore.open(path)
    with pytest.raises(Compacted):
        await anext(store.watch("/", lost.revision))
    assert (await store.create("/new", b"")).revision == lost.revision + 2
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT max(revision) FROM history").fetchone() == (lost.revision + 2,)
    assert noted(path) == lost.revision + 2
