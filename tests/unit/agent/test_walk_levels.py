"""The folders that a walk is in, as deep as pods nest them."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from agent.files import levels
from agent.files.directory import Level
from agent.files.levels import Levels
from agent.files.walk import _Walk, entries_below, remove

DEPTH = 100_000


def test_a_level_far_below_takes_little_memory_and_is_found_again() -> None:
    made = [(f"d\udcff{number}", (1 << 60, (1 << 63) + number), number << 40) for number in range(DEPTH)]
    tracemalloc.start()
    try:
        stack = Levels(Level("", (1, 1)))
        for name, identity, position in made:
            if stack.packs:
                stack.last.forget(stack.last.position)
            stack.push(Level(name, identity, position=position))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(stack) == DEPTH + 1
    assert taken < 60 * DEPTH
    for name, identity, position in reversed(made):
        found = stack.pop()
        assert (found.name, found.identity, found.position, found.ended) == (name, identity, position, False)
    assert len(stack) == 1 and stack.last.identity == (1, 1) and not stack.packs


@pytest.mark.parametrize("depth", [1, 4, 5, 6, 50])
def test_levels_are_split_where_the_walk_continues(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "OBJECTS", 5)
    stack = Levels(Level("0", (0, 0)))
    for number in range(1, depth):
        stack.push(Level(str(number), (0, number)))
    rest = stack.split(min(3, depth))
    assert [level.name for level in rest] == [str(number) for number in range(3, depth)]
    assert len(stack) == min(3, depth) and stack.last.name == str(min(3, depth) - 1) and not stack.packs


def tree(folder: Path, depth: int) -> set[str]:
    """Make a folder with entries before and after the one that leads on, in whatever order they are read."""
    names = set()
    for level in range(depth):
        for name in ("a", "z"):
            (folder / f"{name}{level}").mkdir()
            (folder / f"{name}{level}" / f"file-{name}{level}").touch()
            (folder / f"{name}file{level}").touch()
            names |= {f"{name}{level}", f"file-{name}{level}", f"{name}file{level}"}
        folder /= f"m{level}"
        folder.mkdir()
        names.add(folder.name)
    return names


def test_entries_beside_those_far_below_are_walked_over_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "OBJECTS", 3)
    top = tmp_path / "top"
    top.mkdir()
    names = tree(top, 40)
    found = [name for _, name, _ in entries_below(top)]
    assert len(found) == len(names) and set(found) == names
    remove(top)
    assert not top.exists()


def test_a_walk_continues_after_a_folder_far_below_was_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "OBJECTS", 20)
    top = tmp_path / "top"
    top.mkdir()
    names = tree(top, 40)
    moved = top.joinpath(*(f"m{level}" for level in range(31)))
    paused, reopened, reopen = list[int](), list[int](), _Walk._reopen

    def counted(walk: _Walk, level: Level) -> bool:
        before = len(paused)
        done = reopen(walk, level)
        reopened.append(len(paused) - before)
        return done

    monkeypatch.setattr("agent.files.walk.pause", lambda: paused.append(1))
    monkeypatch.setattr(_Walk, "_reopen", counted)
    found = list[str]()
    with pytest.raises(OSError, match="moved"):
        for _, name, _ in entries_below(top):
            found.append(name)
            if name in ("file-a35", "file-z35") and moved.exists():
                moved.rename(tmp_path / "elsewhere")
    assert set(found) >= {name for name in names if int(name.strip("filemaz-")) < 30}
    assert len(reopened) > 10 and set(reopened) == {1}, "others may have the slot before a folder is opened again"
