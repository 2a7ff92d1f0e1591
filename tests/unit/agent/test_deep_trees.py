"""Folders that pods nest deeper than Python's stack and the limit on open files, and links and moves within them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.volumes import cleanup, ownership
from agent.volumes.walk import entries_below

LEVELS = 3000


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """Make a folder with 3000 below each other, and a file at the bottom."""
    root = tmp_path / "deep"
    root.mkdir()
    descriptor = os.open(root, os.O_RDONLY)
    for _ in range(LEVELS):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=descriptor))
    os.close(descriptor)
    yield root
    if root.exists():
        cleanup.remove_tree(root)  # pytest's own removal recurses


def test_a_deep_tree_is_given_to_a_group_and_removed(deep: Path) -> None:
    ownership.give(deep, os.getgid())
    bits = [os.stat(name, dir_fd=at).st_mode & 0o7777 for at, name, _ in entries_below(deep)]
    assert len(bits) == LEVELS + 1
    assert bits[0] == 0o660 and all(found & 0o2070 == 0o2070 for found in bits[1:])
    open_files = len(os.listdir("/proc/self/fd"))
    cleanup.remove_tree(deep)
    assert not deep.exists() and len(os.listdir("/proc/self/fd")) == open_files


def test_the_walk_goes_up_only_to_where_it_came_from(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").touch()
    (elsewhere / "kept").mkdir(parents=True)
    walk = entries_below(root)
    assert next(walk)[1:] == ("file", False)
    (root / "a" / "b").rename(elsewhere / "b")
    with pytest.raises(OSError, match="moved"):
        next(walk)
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
