"""Walks of a pod's folders while the pod links, moves and removes what is in them."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
import tracemalloc
from pathlib import Path

import pytest

from agent.files import directory, walk
from agent.files.walk import entries_below, remove
from agent.usage import machine
from agent.usage.machine import disk_use
from agent.volumes import cleanup, ownership


def test_the_walk_goes_up_only_to_where_it_came_from(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").touch()
    (elsewhere / "kept").mkdir(parents=True)
    found = entries_below(root)
    assert next(found)[1:] == ("file", False)
    (root / "a" / "b").rename(elsewhere / "b")
    with pytest.raises(OSError, match="moved"):
        for _, name, _ in found:
            assert name == "a"
    assert (elsewhere / "kept").exists()


def test_links_are_entries_and_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path / "kept")
    assert [(name, is_folder) for _, name, is_folder in entries_below(root)] == [("link", False)]
    cleanup.remove_tree(root)
    assert (tmp_path / "kept" / "file").exists()


def tree(root: Path, folders: int, files: int) -> int:
    """Make folders with as many files and folders below each; return how many entries there are."""
    count = 0
    for number in range(folders):
        (root / f"d{number}" / "below").mkdir(parents=True)
        (root / f"d{number}" / "below" / "file").touch()
        count += 3
    for number in range(files):
        (root / f"f{number}").touch()
    return count + files


@pytest.mark.parametrize(("held", "size"), [(walk.HELD, 256), (0, 256), (3, 4096), (0, directory.BATCH_BYTES)])
def test_a_walk_that_reads_folders_in_pieces_finds_and_removes_everything_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int, size: int
) -> None:
    monkeypatch.setattr(walk, "HELD", held)
    monkeypatch.setattr(directory, "BATCH_BYTES", size)
    root = tmp_path / "root"
    for part in ("", "d7", "d7/below"):
        (root / part).mkdir(exist_ok=True)
    count = tree(root / "d7" / "below", 30, 40) + tree(root, 7, 100) + 2
    found = [(os.readlink(f"/proc/self/fd/{at}"), name) for at, name, _ in entries_below(root)]
    assert len(found) == len(set(found)) == count
    remove(root)
    assert not root.exists()


def test_a_folder_of_many_files_is_counted_in_little_memory_and_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, pauses = 20_000, list[float]()
    monkeypatch.setattr(machine, "_pause", pauses.append)
    for number in range(names):
        os.mknod(tmp_path / f"{number:0100}")
    tracemalloc.start()
    try:
        _, inodes = disk_use(tmp_path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert inodes == names + 1 and most < 1 << 20
    assert len(pauses) == names // machine.ENTRIES_PER_YIELD


@pytest.mark.parametrize("depth", [1, walk.OPEN - 1, walk.OPEN, walk.OPEN + 5])
def test_a_walk_continues_after_a_folder_is_moved_and_reports_it_at_the_end(tmp_path: Path, depth: int) -> None:
    root = tmp_path / "root"
    above = root.joinpath(*("d" * depth))
    (tmp_path / "elsewhere").mkdir()
    expected = set()
    for folder in [above, *above.parents][: depth + 1]:
        for number in range(3):
            (folder / f"m{number}").mkdir(parents=True)
            (folder / f"m{number}" / "in").touch()
            (folder / f"f{number}").touch()
            expected.add((str(folder), f"f{number}"))
    found, moved = set(), 0
    open_files = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="moved") as raised:
        for at, name, _ in entries_below(root):
            path = os.readlink(f"/proc/self/fd/{at}")
            found.add((path, name))
            if name == "in":
                Path(path).rename(tmp_path / "elsewhere" / str(moved))
                moved += 1
    assert raised.value.errno == errno.ESTALE and moved == 3 * (depth + 1)
    assert expected <= found
    assert len(os.listdir("/proc/self/fd")) == open_files
    assert len(list((tmp_path / "elsewhere").iterdir())) == moved


def test_a_walk_goes_on_above_a_folder_that_was_moved_with_what_the_walk_was_in(tmp_path: Path) -> None:
    low = tmp_path.joinpath("root", *("d" * (walk.OPEN + 6)))
    low.mkdir(parents=True)
    (low / "in").touch()
    up = low.parents[2]
    (up.parent / "kept").touch()
    found = []
    with pytest.raises(OSError, match="moved"):
        for _, name, _ in entries_below(tmp_path / "root"):
            found.append(name)
            if name == "in":
                up.rename(tmp_path / "up")
                low = (tmp_path / "up").joinpath(*low.relative_to(up).parts)
                low.rename(tmp_path / "low")
    assert "kept" in found and found[-1] == "d"


def test_a_pod_that_moves_folders_hides_nothing_that_it_does_not_move(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*("d" * (walk.OPEN + 3)))
    movers = [tmp_path / f"m{number}" for number in range(6)] + [deep / f"m{number}" for number in range(6)]
    for mover in movers:
        (mover / "a" / "D").mkdir(parents=True)
        (mover / "b").mkdir()
        for name in range(100):
            (mover / "a" / "D" / str(name)).touch()
    for number, mover in enumerate(movers):
        for folder in (tmp_path, deep, mover):
            (folder / f"data{number}").write_bytes(bytes(1 << 16))
    least, ended = disk_use(tmp_path)[0] - len(movers) * (1 << 14), threading.Event()

    def move() -> None:
        while not ended.is_set():
            for here, there in ("ab", "ba"):
                for mover in movers:
                    (mover / here / "D").rename(mover / there / "D")

    thread = threading.Thread(target=move)
    thread.start()
    try:
        seen = [disk_use(tmp_path)[0] for _ in range(30)]
    finally:
        ended.set()
        thread.join()
    assert min(seen) >= least


def test_the_largest_of_some_attempts_counts_where_folders_vanish_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(bytes(1 << 16))
    opened, attempts = walk._Walk.down, list[int]()

    def down(self: walk._Walk, name: str, position: int) -> bool:
        attempts.append(1)
        if len(attempts) != 2:
            raise FileNotFoundError(name)
        return opened(self, name, position)

    monkeypatch.setattr(walk._Walk, "down", down)
    size, inodes = disk_use(tmp_path)
    assert size >= 1 << 16 and inodes == 3


@pytest.mark.parametrize("depth", [1, walk.OPEN, walk.OPEN + 5])
@pytest.mark.parametrize("size", [256, directory.BATCH_BYTES])
def test_a_walk_goes_on_where_the_folder_that_it_is_in_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int, size: int
) -> None:
    monkeypatch.setattr(directory, "BATCH_BYTES", size)
    root = tmp_path / "root"
    above = root.joinpath(*("d" * depth))
    expected = set()
    for folder in [above, *above.parents][: depth + 1]:
        for number in range(3):
            (folder / f"r{number}").mkdir(parents=True)
            for name in range(20):
                (folder / f"r{number}" / f"in{name}").touch()
            (folder / f"f{number}").touch()
            expected.add((str(folder), f"f{number}"))
    found, removed = set(), 0
    for at, name, _ in entries_below(root):
        path = os.readlink(f"/proc/self/fd/{at}")
        found.add((path, name))
        if name.startswith("in") and not path.endswith("(deleted)"):
            shutil.rmtree(path)
            removed += 1
    assert expected <= found and removed == 3 * (depth + 1)


def test_a_walk_reports_possibly_missing_entries_if_the_parent_folder_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "HELD", 0)
    low = tmp_path.joinpath("root", *("d" * (walk.OPEN + 6)))
    low.mkdir(parents=True)
    (low / "in").touch()
    gone, found = low.parents[2], []
    (gone.parent / "kept").touch()
    with pytest.raises(OSError, match="moved") as raised:
        for _, name, _ in entries_below(tmp_path / "root"):
            found.append(name)
            if name == "in":
                low.rename(tmp_path / "removed")
                shutil.rmtree(tmp_path / "removed")
                gone.rename(tmp_path / "elsewhere")
    assert raised.value.errno == errno.ESTALE and "kept" in found


def failing(monkeypatch: pytest.MonkeyPatch, name: str, number: int = errno.EIO) -> None:
    """Make reading a folder of a name fail."""
    read = directory._batch

    def batch(descriptor: int) -> list[tuple[str, bool, int]]:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(f"/{name}"):
            raise OSError(number, os.strerror(number))
        return read(descriptor)

    monkeypatch.setattr(directory, "_batch", batch)


@pytest.mark.parametrize("number", [errno.EIO, errno.EINVAL, errno.ENOENT])
def test_a_folder_that_cannot_be_read_fails_a_walk_when_all_else_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "top" / name).mkdir(parents=True)
        (tmp_path / "top" / name / f"in-{name}").touch()
    failing(monkeypatch, "b", number)
    found, open_files = [], len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError) as raised:
        for _, name, _ in entries_below(tmp_path):
            found.append(name)
    assert raised.value.errno == number and len(os.listdir("/proc/self/fd")) == open_files
    assert sorted(found) == ["a", "b", "c", "in-a", "in-c", "top"]


def test_a_folder_that_cannot_be_entered_keeps_a_walk_from_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"in-{name}").write_bytes(bytes(1 << 16))
    enter = walk._open

    def refuse(name: str | Path, at: int | None = None) -> tuple[int, tuple[int, int], str]:
        if name == "b":
            raise OSError(errno.ENOTCONN, "transport endpoint is not connected")
        return enter(name, at)

    monkeypatch.setattr(walk, "_open", refuse)
    size, inodes = disk_use(tmp_path)
    assert size >= 2 << 16 and inodes == 5
    with pytest.raises(OSError, match="endpoint"):
        remove(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_what_pods_remove_meanwhile_fails_no_removal_and_no_change_of_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "BATCH_BYTES", 256)
    root = tmp_path / "root"
    tree(root, 3, 5)
    read, removed = directory._batch, list[str]()

    def batch(descriptor: int) -> list[tuple[str, bool, int]]:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.endswith("/below"):
            shutil.rmtree(path)
            removed.append(path)
        return read(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(directory, "_batch", batch)
        ownership.set_ownership(root, os.getgid())
    assert len(removed) == 3
    assert {stat.S_IMODE(path.stat().st_mode) & 0o2070 for path in root.iterdir() if path.is_dir()} == {0o2070}
    with monkeypatch.context() as patched:
        tree(tmp_path / "other", 3, 5)
        patched.setattr(directory, "_batch", batch)
        remove(tmp_path / "other")
    assert len(removed) == 6 and not (tmp_path / "other").exists()


def test_a_folder_that_is_moved_out_meanwhile_fails_no_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    tree(root, 3, 5)
    unlink, moved = os.unlink, list[str]()

    def move(name: str, *, dir_fd: int) -> None:
        if name == "file" and not moved:
            moved.append(os.readlink(f"/proc/self/fd/{dir_fd}"))
            Path(moved[0]).rename(elsewhere)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", move)
    remove(root)
    assert moved and elsewhere.exists() and not root.exists()


def test_a_file_that_cannot_be_changed_keeps_no_other_from_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).touch(0o600)
    refused, change = (tmp_path / "b").stat().st_ino, os.chmod

    def chmod(path: str, mode: int) -> None:
        if os.stat(path).st_ino == refused:
            raise PermissionError(errno.EPERM, "Operation not permitted", path)
        change(path, mode)

    monkeypatch.setattr(os, "chmod", chmod)
    ownership.set_ownership(tmp_path, os.getgid())
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "abc"] == [0o660, 0o600, 0o660]
    assert "1 changes failed" in caplog.text
