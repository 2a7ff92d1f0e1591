"""Files without a name that move to another disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import IO

import pytest

from wherry import scratch_file
from wherry.new_files import name_or_copy
from wherry.scratch_file import ScratchFile


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    found = [tmp_path / "first", tmp_path / "second"]
    for folder in found:
        folder.mkdir()
    return found


def full_after(size: int, folder: Path, monkeypatch: pytest.MonkeyPatch, number: int = errno.ENOSPC) -> None:
    """Let a folder take so many bytes of each file."""
    write = scratch_file._write

    def limited(file: IO[bytes], data: bytes) -> None:
        if _folder(file) == folder and file.tell() + len(data) > size:
            write(file, data[: size - file.tell()])
            raise OSError(number, os.strerror(number))
        write(file, data)

    monkeypatch.setattr(scratch_file, "_write", limited)


def _folder(file: IO[bytes]) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{file.fileno()}")).parent


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_what_was_written_moves_to_the_next_disk(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    full_after(10, folders[0], monkeypatch, number)
    with ScratchFile(folders) as scratch:
        assert scratch.write(b"12345678") == 8 and _folder(scratch.file) == folders[0]
        assert scratch.write(b"abcdefgh") == 8 and _folder(scratch.file) == folders[1]
        scratch.write(b"!")
        name_or_copy(scratch.file, folders[1] / "name")
    assert (folders[1] / "name").read_bytes() == b"12345678abcdefgh!" and not list(folders[0].iterdir())


def test_a_folder_that_is_not_there_is_left_out(folders: list[Path]) -> None:
    with ScratchFile([folders[0] / "none", folders[1]]) as scratch:
        assert _folder(scratch.file) == folders[1]


def test_the_last_problem_names_its_folder(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    full_after(10, folders[0], monkeypatch)
    with ScratchFile(folders[:1]) as scratch, pytest.raises(OSError, match="No space left on device") as caught:
        scratch.write(b"12345678901")
    assert caught.value.filename == str(folders[0])


def test_a_file_without_a_name_is_copied_to_another_filesystem(folders: list[Path]) -> None:
    with ScratchFile([Path("/dev/shm")]) as scratch:
        scratch.write(b"text")
        name_or_copy(scratch.file, folders[0] / "name")
    assert (folders[0] / "name").read_bytes() == b"text" and (folders[0] / "name").stat().st_mode & 0o777 == 0o600
