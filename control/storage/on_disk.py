"""Compares a file on the disk with its page cache, and writes what differs.

After writing blocks that were new to a file has failed, ext4 goes on as if they had never been written, also when they are
written again: fsync then succeeds, and after a power cut there are zeros (seen with Linux 6.18 and ext4's defaults). A
read past the page cache shows the zeros before. Freeing such blocks first, and writing them again, gives new ones.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

CHUNK, PAGE = 1 << 20, 4096
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


class OnDisk:
    """One database file. Close it after all connections: closing any descriptor of a file ends SQLite's locks on it."""

    def __init__(self, path: Path) -> None:
        """Open the file; raises OSError."""
        self._cached = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._direct: int | None = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.EINVAL:
                os.close(self._cached)
                raise
            self._direct = None  # a file system of memory

    def ensure(self) -> None:
        """Write to the disk what the page cache shows and the disk does not; nobody may write meanwhile. Raises OSError."""
        for offset in self._missing():
            page = os.pread(self._cached, PAGE, offset)
            _free(self._cached, offset)
            os.pwrite(self._cached, page, offset)
        os.fsync(self._cached)
        if next(self._missing(), None) is not None:
            raise OSError(errno.EIO, "the disk does not hold what was written to it")

    def _missing(self) -> Iterator[int]:
        """Yield the offsets of pages that differ from those on the disk."""
        if self._direct is None:
            return
        with mmap.mmap(-1, CHUNK) as buffer:
            for start in range(0, os.fstat(self._cached).st_size, CHUNK):
                try:
                    read = os.preadv(self._direct, [buffer], start)
                except OSError as error:
                    if error.errno == errno.EINVAL:
                        return  # a file system that only seems to read past the cache
                    raise
                cached = os.pread(self._cached, CHUNK, start)
                if read == len(cached) and buffer[:read] == cached:
                    continue
                for at in range(0, len(cached), PAGE):
                    if buffer[at : at + PAGE][: max(read - at, 0)] != cached[at : at + PAGE]:
                        yield start + at

    def close(self) -> None:
        os.close(self._cached)
        if self._direct is not None:
            os.close(self._direct)


def _free(descriptor: int, offset: int) -> None:
    where, length = ctypes.c_longlong(offset), ctypes.c_longlong(PAGE)
    if _libc.fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, where, length) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
