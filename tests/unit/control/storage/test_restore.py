"""A restore by root into a folder of another account: nothing is lost when it is killed, and no link is followed."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from control.storage import database_folder, schema
from control.storage.snapshot import restore
from control.storage.sqlite import SqliteStore
from control.storage.store import Unavailable

CHANGES = 5
"""Changes that a restore makes in the folder: two files are moved in, the log and its index removed, one more is moved in."""


@pytest.fixture
def private(tmp_path: Path) -> Path:
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    return folder


async def crashed(path: Path, saved: Path) -> None:
    """Leave a database as a server that is killed does: with a log; `saved` has less than it."""
    store = await SqliteStore.open(path)
    await store.create("/a", b"1")
    await store.snapshot(saved)
    await store.create("/b", b"2")
    kept = {suffix: path.with_name(path.name + suffix).read_bytes() for suffix in ("", "-wal")}
    await store.close()
    for suffix, data in kept.items():
        path.with_name(path.name + suffix).write_bytes(data)


async def keys(path: Path) -> list[str]:
    store = await SqliteStore.open(path)
    try:
        return [item.key for item in (await store.list("/")).items]
    finally:
        await store.close()


@pytest.mark.parametrize("after", range(CHANGES + 1))
async def test_a_killed_restore_leaves_the_old_database_or_the_new_one(
    after: int, private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    path, saved, changes = folder / "state.db", tmp_path / "saved.db", 0
    await crashed(path, saved)

    def killed(change: Callable[..., None]) -> Callable[..., None]:
        def counted(*arguments: Any, **options: Any) -> None:
            nonlocal changes
            if "dst_dir_fd" in options or "dir_fd" in options:
                if changes == after:
                    raise KeyboardInterrupt
                changes += 1
            change(*arguments, **options)

        return counted

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed(os.replace))
        patch.setattr(os, "unlink", killed(os.unlink))
        with contextlib.suppress(KeyboardInterrupt):
            restore(saved, path, private)
    assert changes == after
    assert await keys(path) == (["/a"] if after == CHANGES else ["/a", "/b"])
    if after:
        assert await keys(folder / "state.db.replaced") == ["/a", "/b"]
    restore(saved, path, Path(tempfile.mkdtemp(dir=private)))
    assert await keys(path) == ["/a"]


async def test_links_that_are_put_into_the_folder_meanwhile_are_not_followed(
    private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, victims = tmp_path / "data", tmp_path / "victims"
    folder.mkdir()
    victims.mkdir()
    path, saved = folder / "state.db", tmp_path / "saved.db"
    await crashed(path, saved)
    real = sqlite3.connect

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        """Do what the folder's owner can do before each connection."""
        assert str(folder) not in str(arguments[0])
        for suffix in ("", "-wal", "-shm", "-journal", ".replaced", ".restoring", ".restoring.partial", ".partial"):
            name = folder / f"state.db{suffix}"
            name.unlink(missing_ok=True)
            name.symlink_to(victims / f"new{suffix}")
        return real(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect)
        with contextlib.suppress(Unavailable):
            restore(saved, path, private)
    assert list(victims.iterdir()) == []


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_database_that_is_a_link_is_not_copied(suffix: str, private: Path, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    for each in ("", "-wal"):
        (tmp_path / f"state.db{each}").write_bytes(b"")
    (tmp_path / f"state.db{suffix}").unlink()
    (tmp_path / f"state.db{suffix}").symlink_to(__file__)
    with pytest.raises(Unavailable, match=f"state.db{suffix} is a link"):
        database_folder.copy_database(path, private / "copy")
    (tmp_path / f"state.db{suffix}").unlink()
    os.mkfifo(tmp_path / f"state.db{suffix}")
    shutil.rmtree(private)
    private.mkdir()
    with pytest.raises(Unavailable, match=f"state.db{suffix} is not a regular file"):
        database_folder.copy_database(path, private / "copy")


def test_a_file_is_moved_into_a_folder_on_another_file_system(private: Path) -> None:
    made = private / "made"
    made.write_bytes(b"data")
    other = Path("/dev/shm") / f"wherry-{os.getpid()}-restore"
    other.mkdir(mode=0o700)
    try:
        if other.stat().st_dev == private.stat().st_dev:
            pytest.skip("/dev/shm is on the same file system")
        (other / "state.db.partial").symlink_to(private / "victim")
        with database_folder.opened(other) as folder:
            database_folder.move_in(made, folder, "state.db")
        assert (other / "state.db").read_bytes() == b"data" and (other / "state.db").stat().st_mode & 0o777 == 0o600
        assert os.listdir(other) == ["state.db"] and not (private / "victim").exists()
    finally:
        shutil.rmtree(other)


def test_the_mode_of_a_database_is_set_on_the_file_that_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, victim, real = tmp_path / "state.db", tmp_path / "victim", os.open
    victim.write_bytes(b"")
    victim.chmod(0o644)

    def swapped(file: Any, *arguments: Any, **options: Any) -> int:
        descriptor = real(file, *arguments, **options)
        if file == path and not path.is_symlink():
            path.unlink()
            path.symlink_to(victim)
        return descriptor

    monkeypatch.setattr(os, "open", swapped)
    schema.prepare(path)
    assert victim.stat().st_mode & 0o777 == 0o644
