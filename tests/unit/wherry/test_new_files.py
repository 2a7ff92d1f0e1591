"""Files that root writes into a folder of another account, which replaces names in it and the folder itself meanwhile."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kube.process import Result
from tests.support import bundle_files
from wherry import bundle, bundle_commands, images, snapshot_files
from wherry.errors import WherryError
from wherry.main import app
from wherry.new_files import new_file


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    file = tmp_path / "root" / "victim"
    file.parent.mkdir()
    file.write_text("precious")
    return file


@pytest.fixture
def share(tmp_path: Path) -> Path:
    folder = tmp_path / "share"
    folder.mkdir()
    return folder


def replace_all(share: Path, victim: Path) -> None:
    """Put links to a file in the place of all that is in a folder, in folders as in themselves."""
    for each in list(share.iterdir()):
        if each.name.startswith("moved") or each.is_symlink():
            continue
        is_folder = each.is_dir()
        each.rename(share / f"moved{len(os.listdir(share))}")
        if is_folder:
            each.mkdir()
            for name in ("bundle", "saved.tar", "bundle.tar.gz", "out"):
                (each / name).symlink_to(victim)
        else:
            each.symlink_to(victim)


def test_a_bundle_is_written_to_no_file_of_that_the_folders_owner_links_to(
    share: Path, victim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = bundle._member

    def member(*arguments: Any) -> Any:
        found = hashed(*arguments)
        replace_all(share, victim)
        return found

    async def run(argv: list[str], *, stdout: Any = -1, **_: Any) -> Result:
        if "export" in argv:
            os.write(stdout, b"image")
            replace_all(share, victim)
        return Result(0, "REF TYPE DIGEST SIZE PLATFORMS LABELS\nweb:1 type sha256:aa 1.0 MiB linux/amd64 -\n", "")

    monkeypatch.setattr(bundle, "_member", member)
    monkeypatch.setattr(images, "run", run)
    monkeypatch.setattr(images, "ctr", lambda settings: ["ctr"])
    monkeypatch.setattr(bundle_commands, "root", lambda: None)
    monkeypatch.setattr(bundle_commands, "installed", lambda prefix: None)
    bundle_files.package(tmp_path / "a.deb")
    done = CliRunner().invoke(
        app, ["bundle", "create", str(share / "out"), str(tmp_path / "a.deb"), "--image", "web:1"]
    )
    assert victim.read_text() == "precious"
    assert done.exit_code == 0, done.exception
    with bundle.opened(share / "out") as file:
        assert bundle.verify(file, done.output.split()[-1]).files[1].size == len(b"image")


def test_a_file_is_written_whole_into_the_folder_that_was_opened(share: Path, victim: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    with new_file(share / "victim") as file:
        file.write(b"written")
        replace_all(share, victim)
        share.rename(moved)
        share.symlink_to(victim.parent)
    assert victim.read_text() == "precious"
    assert os.listdir(victim.parent) == ["victim"]
    assert (moved / "victim").read_bytes() == b"written"
    assert stat.S_IMODE((moved / "victim").stat().st_mode) == 0o600


def test_a_snapshot_from_another_filesystem_is_written_into_the_folder_that_was_opened(
    share: Path, victim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, link = shutil.copyfileobj, os.link

    def copied(*arguments: Any) -> None:
        copy(*arguments)
        replace_all(share, victim)
        share.rename(tmp_path / "moved")
        share.symlink_to(victim.parent)

    def linked(source: Any, *arguments: Any, **options: Any) -> None:
        if "/proc/" not in str(source):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        link(source, *arguments, **options)

    monkeypatch.setattr(shutil, "copyfileobj", copied)
    monkeypatch.setattr(os, "link", linked)
    (tmp_path / "private").write_bytes(b"snapshot")
    snapshot_files.publish(tmp_path / "private", share / "victim")
    assert victim.read_text() == "precious"
    assert (tmp_path / "moved" / "victim").read_bytes() == b"snapshot"


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_a_name_that_is_taken_meanwhile_keeps_what_it_has(share: Path, victim: Path, kind: str) -> None:
    def take() -> None:
        if kind == "file":
            (share / "out").write_text("theirs")
        elif kind == "link":
            (share / "out").symlink_to(victim)
        else:
            (share / "out").mkdir()

    with pytest.raises(WherryError, match="exists: remove it or name another file"), new_file(share / "out") as file:
        file.write(b"written")
        take()
    with pytest.raises(WherryError, match="exists: remove it or name another file"), new_file(share / "out") as file:
        raise AssertionError("it is refused before anything is written")
    assert victim.read_text() == "precious"
    assert os.listdir(share) == ["out"]


def test_a_file_that_another_account_removes_is_an_error_and_nothing_else_gets_its_name(
    share: Path, victim: Path
) -> None:
    with pytest.raises(WherryError, match="another account removed the file"), new_file(share / "out") as file:
        file.write(b"written")
        (share / "out.partial").unlink()
        (share / "out.partial").symlink_to(victim)
    assert not os.listdir(share)


def test_a_file_that_cannot_be_completed_leaves_nothing(share: Path) -> None:
    with pytest.raises(OSError, match="No space left"), new_file(share / "out"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not os.listdir(share)


def test_without_hard_links_the_file_gets_its_name_all_the_same(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with new_file(share / "out") as file:
        file.write(b"written")
    assert (share / "out").read_bytes() == b"written" and os.listdir(share) == ["out"]
