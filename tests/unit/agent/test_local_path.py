"""Folders of local-path volumes: made and removed in their place, under their names, and nowhere else."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from agent.volumes.local_path import LocalPathVolumes

NAME = "pvc-01234567-89ab-cdef-0123-456789abcdef"


def test_a_volumes_folder_is_made_for_everybody_and_removed_with_what_is_in_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("keep")
    volumes = LocalPathVolumes(tmp_path / "local-path")
    folder = volumes.folder / NAME
    volumes.prepare(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777
    (folder / "link").symlink_to(outside)
    (folder / "file").write_text("x")
    volumes.prepare(folder)
    assert (folder / "file").exists()
    volumes.remove(NAME)
    volumes.remove(NAME)
    assert not folder.exists() and outside.read_text() == "keep"


@pytest.mark.parametrize("name", ["..", "pvc-x", f"{NAME}/..", "", f"../{NAME}", f"{NAME}\n"])
def test_other_names_are_neither_made_nor_removed(tmp_path: Path, name: str) -> None:
    volumes = LocalPathVolumes(tmp_path / "local-path")
    with pytest.raises(ValueError, match="not the name"):
        volumes.remove(name)
    volumes.prepare(tmp_path / "elsewhere" / NAME)
    volumes.prepare(volumes.folder / (name or "x"))
    assert not list(tmp_path.iterdir())


def test_a_link_in_a_volumes_place_is_not_followed(tmp_path: Path) -> None:
    volumes = LocalPathVolumes(tmp_path / "local-path")
    volumes.folder.mkdir()
    target = tmp_path / "target"
    target.mkdir()
    (volumes.folder / NAME).symlink_to(target)
    with pytest.raises(Exception, match="is a link"):
        volumes.remove(NAME)
    assert target.exists()
