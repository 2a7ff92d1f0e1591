"""Changes of a file in the home of the user behind sudo, who may put links, pipes and other files there at any moment."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from wherry import home_changes
from wherry.home_changes import LeftError, change, copies

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
UID, GID = os.getuid(), os.getgid()


def edit(data: bytes) -> bytes:
    return data if data.endswith(b"!") else data + b"!"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / ".kube"
    folder.mkdir()
    (folder / "config").write_bytes(b"data")
    (folder / "config").chmod(0o644)
    return folder / "config"


def files(target: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in target.parent.iterdir()}


def test_a_file_is_replaced_and_a_dated_copy_kept_both_readable_by_the_user_alone(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[str, int, int]] = []
    monkeypatch.setattr(
        os, "fchown", lambda number, uid, gid: given.append((os.readlink(f"/proc/self/fd/{number}"), uid, gid))
    )
    inode = target.stat().st_ino
    assert change(target, edit, UID, GID, NOW)
    assert files(target) == {"config": b"data!", "config.wherry-backup-20260102T030405Z": b"data"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in target.parent.iterdir()} == {0o600}
    assert target.stat().st_ino != inode  # replaced whole: no reader sees a part of it
    names = [Path(name).name for name, uid, gid in given if (uid, gid) == (UID, GID)]
    assert names == ["config.lock", ".config.wherry", ".config.wherry"] and len(given) == 3


def test_a_change_that_changes_nothing_writes_nothing(target: Path) -> None:
    target.write_bytes(b"data!")
    before = target.parent.stat().st_mtime_ns
    assert not change(target, edit, UID, GID, NOW)
    assert files(target) == {"config": b"data!"} and target.parent.stat().st_mtime_ns == before


def test_one_copy_is_kept_and_other_files_stay(target: Path) -> None:
    others = {"config.wherry-backup-old": b"a", "config.wherry-backup-20200101T000000Z.gz": b"b", "config.bak": b"c"}
    for name, data in others.items():
        (target.parent / name).write_bytes(data)
    for day in range(3):
        change(target, lambda data, day=day: b"%d" % day, UID, GID, NOW + timedelta(days=day))  # type: ignore[misc]
    assert files(target) == {**others, "config": b"2", "config.wherry-backup-20260104T030405Z": b"1"}
    assert copies(target, UID) == {target.with_name("config.wherry-backup-20260104T030405Z"): b"1"}


def test_changes_within_a_second_leave_the_last_copy(target: Path) -> None:
    for number in range(7):
        assert change(target, lambda data, number=number: b"%d" % number, UID, GID, NOW)  # type: ignore[misc]
    assert sorted(files(target).values()) == [b"5", b"6"]


def test_copies_of_a_file_that_is_not_there_are_none(tmp_path: Path) -> None:
    assert copies(tmp_path / ".kube/config", UID) == {}


def test_a_file_that_is_not_there_is_none_to_change(tmp_path: Path) -> None:
    for path in (tmp_path / ".kube/config", tmp_path / "no/.kube/config"):
        with pytest.raises(FileNotFoundError):
            change(path, edit, UID, GID, NOW)
    (tmp_path / ".kube").mkdir()
    with pytest.raises(FileNotFoundError):
        change(tmp_path / ".kube/config", edit, UID, GID, NOW)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("link", "it is a link"),
        ("linked folder", "its folder is a link or no folder"),
        ("pipe", "it is no regular file"),
        ("folder", "it is no regular file"),
        ("large", "it is larger than 1 MiB"),
        ("another's", "it is another user's"),
        ("another's folder", "its folder is another user's"),
        ("locked", "config.lock beside it exists: remove that if no kubectl runs"),
    ],
)
def test_what_is_not_the_users_own_file_is_left_as_it_is(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, reason: str
) -> None:
    monkeypatch.setattr(home_changes, "LOCK_SECONDS", 0.01)
    other, fstat = tmp_path / "other", os.fstat
    if case in ("link", "pipe", "folder"):
        target.rename(other)
        makers: dict[str, Callable[[], None]] = {
            "link": lambda: target.symlink_to(other),
            "pipe": lambda: os.mkfifo(target),
            "folder": target.mkdir,
        }
        makers[case]()
    elif case == "linked folder":
        target.parent.rename(other)
        target.parent.symlink_to(other)
    elif case == "large":
        target.write_bytes(bytes((1 << 20) + 1))
    elif case == "locked":
        (target.parent / "config.lock").touch()
    else:

        def owned(number: int) -> os.stat_result:
            found = list(fstat(number))
            if stat.S_ISDIR(int(found[0])) == case.endswith("folder"):
                found[4] = UID + 1
            return os.stat_result(found)

        monkeypatch.setattr(os, "fstat", owned)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(LeftError) as found:
        change(target, edit, UID, GID, NOW)
    assert str(found.value) == reason and sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("how", ["written", "replaced", "linked", "removed"])
def test_what_another_program_changed_meanwhile_is_not_replaced(target: Path, tmp_path: Path, how: str) -> None:
    (tmp_path / "other").write_bytes(b"other")
    calls: list[bytes] = []

    def meddle(data: bytes) -> bytes:
        calls.append(data)
        if len(calls) == 2:  # the first call only looks
            if how == "written":
                target.write_bytes(b"longer data")
            elif how == "replaced":
                (tmp_path / "other").rename(target)
            else:
                target.unlink()
                if how == "linked":
                    target.symlink_to(tmp_path / "other")
        return data + b"!"

    expected = FileNotFoundError if how == "removed" else LeftError
    with pytest.raises(expected):
        change(target, meddle, UID, GID, NOW)
    assert not any(data.endswith(b"!") for data in files(target).values())
    assert {"config.lock", ".config.wherry"}.isdisjoint(files(target))
    if how == "linked":
        assert target.is_symlink() and (tmp_path / "other").read_bytes() == b"other"


def test_an_error_of_the_edit_or_the_disk_leaves_the_file_and_no_lock(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(data: bytes) -> bytes:
        raise KeyError

    with pytest.raises(KeyError):
        change(target, refuse, UID, GID, NOW)

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        LeftError, match=r"it cannot be changed \(no space left on device: the disk is full, free space on it\)"
    ):
        change(target, edit, UID, GID, NOW)
    assert files(target) == {"config": b"data"}


class Cut(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("call", ["open", "fchown", "fsync", "link", "rename", "unlink"])
@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
def test_a_change_that_is_cut_leaves_the_old_file_or_the_new_one(
    target: Path, monkeypatch: pytest.MonkeyPatch, call: str, at: int
) -> None:
    real, count = getattr(os, call), 0

    def step(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count == at:
            raise Cut
        return real(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, step)
        try:
            change(target, edit, UID, GID, NOW)
        except Cut:
            pass
    assert target.read_bytes() in (b"data", b"data!")
    (target.parent / "config.lock").unlink(missing_ok=True)
    change(target, edit, UID, GID, NOW + timedelta(days=1))
    found = files(target)
    assert found.pop("config") == b"data!" and set(found.values()) <= {b"data"} and ".config.wherry" not in found


def test_the_folder_that_was_opened_is_written_also_if_another_takes_its_place(target: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config").write_bytes(b"root's")

    def swap(data: bytes) -> bytes:
        if not target.parent.is_symlink():
            target.parent.rename(tmp_path / "moved")
            target.parent.symlink_to(elsewhere)
        return data + b"!"

    assert change(target, swap, UID, GID, NOW)
    assert (elsewhere / "config").read_bytes() == b"root's" and len(list(elsewhere.iterdir())) == 1
    assert (tmp_path / "moved/config").read_bytes() == b"data!"
