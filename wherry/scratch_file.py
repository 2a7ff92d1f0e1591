"""A file without a name, written to the first of several folders whose disk takes it.

A bug report is written on machines whose disks are full or failing. If a write fails, what was written moves to the next
folder.
Nothing of the file remains if the process is killed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from kube.files import naming_file

MODE = 0o600


class ScratchFile:
    """A file for writing; `file` is the open file, `folder` where it is. Raises OSError if no folder takes it. Blocks."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = list(folders)
        self.file = self._open_next(None)

    def write(self, data: bytes) -> int:
        """Write all of the data, to another folder if this one does not take it."""
        while True:
            position = self.file.tell()
            try:
                with naming_file(self.folder):
                    _write(self.file, data)
            except OSError as error:
                self.file.truncate(position)
                self.file = self._open_next(error, self.file)
            else:
                return len(data)

    def _open_next(self, problem: OSError | None, former: IO[bytes] | None = None) -> IO[bytes]:
        """Open a file in the next folder that takes one with the content of the former one; raises the last problem."""
        while self._folders:
            folder = self._folders.pop(0)
            try:
                with naming_file(folder):
                    opened = _unnamed(folder)
                    try:
                        if former is not None:
                            former.seek(0)
                            shutil.copyfileobj(former, opened, 1 << 20)
                    except OSError:
                        opened.close()
                        raise
            except OSError as error:
                problem = error
                continue
            if former is not None:
                former.close()
            self.folder = folder
            return opened
        raise problem or FileNotFoundError("no folder was given")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()


def _write(file: IO[bytes], data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _unnamed(folder: Path) -> IO[bytes]:
    """Open a file that has no name, and can be given one where the file system has such files."""
    try:
        descriptor = os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, MODE)
    except OSError:
        return tempfile.TemporaryFile(dir=folder, buffering=0)
    return open(descriptor, "w+b", buffering=0)
