"""Files that `wherry up` writes into the home of the user behind sudo, who may put links there."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from wherry import home_files


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Return what is given away, and to whom; nothing is given away through a path."""
    found: list[tuple[str, int, int]] = []

    def fchown(descriptor: int, uid: int, gid: int) -> None:
        found.append((os.readlink(f"/proc/self/fd/{descriptor}"), uid, gid))

    def chown(*arguments: Any, **options: Any) -> None:
        raise AssertionError(arguments)

    monkeypatch.setattr(os, "fchown", fchown)
    monkeypatch.setattr(os, "chown", chown)
    return found


def test_a_missing_file_is_written_and_given_with_the_folder_that_was_made(
    tmp_path: Path, given: list[tuple[str, int, int]]
) -> None:
    target = tmp_path / ".kube" / "config"
    assert home_files.give(target, b"data", 7, 8)
    assert target.read_bytes() == b"data" and stat.S_IMODE(target.stat().st_mode) == 0o600
    assert given == [(f"{target.parent}.wherry", 7, 8), (str(target.parent / ".config.wherry"), 7, 8)]
    assert list(tmp_path.iterdir()) == [target.parent] and list(target.parent.iterdir()) == [target]
    assert not home_files.give(target, b"other", 7, 8)
    assert target.read_bytes() == b"data"


def test_a_folder_that_is_a_link_is_left_alone(tmp_path: Path, given: list[tuple[str, int, int]]) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".kube").symlink_to(tmp_path / "etc")
    assert not home_files.give(tmp_path / "home/.kube/config", b"data", 7, 8)
    assert given == [] and list((tmp_path / "etc").iterdir()) == []


def test_a_file_that_is_a_link_is_left_alone_wherever_it_leads(
    tmp_path: Path, given: list[tuple[str, int, int]]
) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").symlink_to(tmp_path / "missing")
    assert not home_files.give(tmp_path / ".kube/config", b"data", 7, 8)
    assert given == [] and not (tmp_path / "missing").exists()


def test_a_folder_that_was_there_keeps_its_owner(tmp_path: Path, given: list[tuple[str, int, int]]) -> None:
    (tmp_path / ".kube").mkdir()
    target = tmp_path / ".kube" / "config"
    assert home_files.give(target, b"data", 7, 8)
    assert given == [(str(target.parent / ".config.wherry"), 7, 8)]


@pytest.mark.parametrize("content", ["file", "nothing"])
def test_a_folder_put_in_the_place_of_the_one_that_was_made_is_not_given_away(
    tmp_path: Path, given: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    other, make = tmp_path / "backup", os.mkdir
    other.mkdir()
    if content == "file":
        (other / "secret").touch()
    else:
        os.utime(other, (1, 1))

    def mkdir(name: str, mode: int, *, dir_fd: int) -> None:
        make(name, mode, dir_fd=dir_fd)
        (tmp_path / ".kube.wherry").rename(tmp_path / "made")
        other.rename(tmp_path / ".kube.wherry")

    monkeypatch.setattr(os, "mkdir", mkdir)
    assert not home_files.give(tmp_path / ".kube" / "config", b"data", 7, 8)
    assert given == [] and not (tmp_path / ".kube" / "config").exists()


class Cut(BaseException):
    """Stands for the end of the process."""


CALLS = ("mkdir", "open", "fchown", "rename", "fsync", "link", "unlink")


@pytest.mark.parametrize("cleans", [True, False])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("folder", [False, True])
def test_a_call_that_is_cut_leaves_nothing_of_roots_and_the_next_one_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, after: bool, folder: bool, cleans: bool
) -> None:
    target, owned = tmp_path / ".kube" / "config", set[int]()
    if folder:
        target.parent.mkdir()
        owned.add(target.parent.stat().st_ino)
    counts, real = dict.fromkeys(CALLS, 0), {call: getattr(os, call) for call in (*CALLS, "rmdir")}
    cut: list[int] = []

    def fchown(descriptor: int, uid: int, gid: int) -> None:
        owned.add(os.fstat(descriptor).st_ino)

    def step(call: str, at: int) -> Any:
        def do(*arguments: Any, **options: Any) -> Any:
            if cut and not cleans:
                raise Cut  # a process that was killed does nothing more
            counts[call] += 1
            last = call == name and counts[call] == at
            if last and not after:
                cut.append(at)
                raise Cut
            found = fchown(*arguments) if call == "fchown" else real[call](*arguments, **options)
            if last:
                cut.append(at)
                raise Cut
            return found

        return do

    for at in range(1, 5):
        cut.clear()
        counts.update(dict.fromkeys(CALLS, 0))
        with monkeypatch.context() as patched:
            for call in CALLS:
                patched.setattr(os, call, step(call, at))
            if not cleans:
                patched.setattr(os, "rmdir", lambda *a, **o: real["rmdir"](*a, **o) if not cut else None)
            try:
                home_files.give(target, b"data", 7, 8)
            except Cut:
                pass
        for path in (target.parent, target):
            assert not path.exists() or path.stat().st_ino in owned, (path, at)
        assert not target.exists() or target.read_bytes() == b"data"
        monkeypatch.setattr(os, "fchown", fchown)
        home_files.give(target, b"data", 7, 8)
        assert target.read_bytes() == b"data" and list(target.parent.iterdir()) == [target]
        assert list(tmp_path.iterdir()) == [target.parent]
        target.unlink()
        if not folder:
            target.parent.rmdir()
            owned.clear()


def made(folder: Path, content: bytes = b"data") -> Path:
    folder.mkdir(parents=True)
    (folder / "config").write_bytes(content)
    return folder / "config"


def test_a_file_is_removed_only_while_it_has_the_content(tmp_path: Path) -> None:
    target = made(tmp_path / ".kube")
    assert not home_files.remove(target, b"dat", os.getuid()) and target.exists()
    assert home_files.remove(target, b"data", os.getuid()) and not target.exists()
    assert not home_files.remove(target, b"data", os.getuid())
    assert not home_files.remove(tmp_path / "other/config", b"data", os.getuid())


def test_nothing_is_removed_through_a_link(tmp_path: Path) -> None:
    elsewhere = made(tmp_path / "elsewhere")
    (tmp_path / ".kube").symlink_to(elsewhere.parent)
    assert not home_files.remove(tmp_path / ".kube/config", b"data", os.getuid()) and elsewhere.exists()
    (tmp_path / ".kube").unlink()
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube/config").symlink_to(elsewhere)
    assert not home_files.remove(tmp_path / ".kube/config", b"data", os.getuid())
    assert elsewhere.exists() and (tmp_path / ".kube/config").is_symlink()


@pytest.mark.parametrize("swapped", ["folder", "file"])
def test_what_is_put_in_its_place_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped: str) -> None:
    elsewhere, target, fstat = made(tmp_path / "elsewhere"), made(tmp_path / ".kube"), os.fstat
    other = made(tmp_path / "third", b"other")

    def swap(descriptor: int) -> os.stat_result:
        """Put something else in the place of what was opened, after it was opened."""
        monkeypatch.setattr(os, "fstat", fstat)
        if swapped == "folder":
            target.parent.rename(tmp_path / "moved")
            (tmp_path / ".kube").symlink_to(elsewhere.parent)
        else:
            other.rename(target)
        return fstat(descriptor)

    monkeypatch.setattr(os, "fstat", swap)
    removed = home_files.remove(target, b"data", os.getuid())
    assert elsewhere.exists() and removed == (swapped == "folder")
    assert (tmp_path / "moved/config").exists() is False
    if swapped == "file":
        assert target.read_bytes() == b"other"


@pytest.mark.parametrize("foreign", ["folder", "file"])
def test_nothing_of_others_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, foreign: str) -> None:
    target, fstat = made(tmp_path / ".kube"), os.fstat

    def owned(descriptor: int) -> os.stat_result:
        found = fstat(descriptor)
        if stat.S_ISDIR(found.st_mode) == (foreign == "folder"):
            fields = list(found)
            fields[4] = os.getuid() + 1
            return os.stat_result(fields)
        return found

    monkeypatch.setattr(os, "fstat", owned)
    assert not home_files.remove(target, b"data", os.getuid()) and target.exists()
