"""What `wherry up` writes into the home of the person behind sudo, who may put links there."""

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
    assert given == [(str(target.parent), 7, 8), (str(target), 7, 8)]
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
    assert given == [(str(target), 7, 8)]


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
        (tmp_path / ".kube").rename(tmp_path / "made")
        other.rename(tmp_path / ".kube")

    monkeypatch.setattr(os, "mkdir", mkdir)
    assert not home_files.give(tmp_path / ".kube" / "config", b"data", 7, 8)
    assert given == [] and not (tmp_path / ".kube" / "config").exists()


def test_pipes_and_endless_devices_hold_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "file").write_bytes(b"data")
    held = [name for name in ("pipe", "zero", "file", "missing") if home_files.holds(tmp_path / name, b"data")]
    assert held == ["file"]
    assert not home_files.holds(tmp_path / "file", b"dat")
