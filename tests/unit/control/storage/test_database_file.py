"""Comparison of a database file with the disk, with reads past the page cache replaced by another file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from control.storage import database_file
from control.storage.database_file import PAGE, DatabaseFile

CONTENTS = b"".join(bytes([n + 1]) * PAGE for n in range(10)) + b"end"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DatabaseFile]:
    monkeypatch.setattr(database_file, "CHUNK", 4 * PAGE)
    (tmp_path / "state.db").write_bytes(CONTENTS)
    with closing(DatabaseFile(tmp_path / "state.db")) as made:
        yield made


def disk_has(file: DatabaseFile, tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "disk").write_bytes(contents)
    if file._direct is not None:
        os.close(file._direct)
    file._direct = os.open(tmp_path / "disk", os.O_RDONLY)


@pytest.mark.parametrize("lost", [[], [0], [3, 4], [9], [10], list(range(11))])
def test_each_page_that_the_disk_does_not_have_is_found(file: DatabaseFile, tmp_path: Path, lost: list[int]) -> None:
    contents = bytearray(CONTENTS)
    for number in lost:
        contents[number * PAGE : (number + 1) * PAGE] = bytes(len(CONTENTS[number * PAGE : (number + 1) * PAGE]))
    disk_has(file, tmp_path, bytes(contents))
    assert list(file._missing()) == [number * PAGE for number in lost]


def test_a_file_that_is_shorter_on_the_disk_misses_its_end(file: DatabaseFile, tmp_path: Path) -> None:
    disk_has(file, tmp_path, CONTENTS[: 5 * PAGE + 7])
    assert list(file._missing()) == [number * PAGE for number in range(5, 11)]


def test_the_comparison_can_end_early_and_begin_again(file: DatabaseFile, tmp_path: Path) -> None:
    disk_has(file, tmp_path, bytes(len(CONTENTS)))
    for _ in range(2):
        assert next(file._missing(), None) == 0
