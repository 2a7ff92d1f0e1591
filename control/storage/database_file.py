"""The database file: verifies that the disk holds what the page cache shows, and writes what differs.

After a failed write of newly allocated blocks, ext4 continues as if they had never been written, even when they are
written again: fsync then succeeds, and after a power failure the blocks contain zeros (seen with Linux 6.18 and ext4's
defaults). A direct read (O_DIRECT) shows the zeros before that. Freeing such blocks and writing them again allocates new
ones.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

CHUNK, PAGE = 8 << 20, 4096
"""Bytes. After each chunk the thread waits for the GIL, some milliseconds if modules are imported meanwhile."""
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


def _are_equal(one: mmap.mmap, other: mmap.mmap, length: int) -> bool:
    """Compare the first bytes of two buffers, without copies and without the interpreter's lock."""
    first, second = (ctypes.c_char.from_buffer(buffer) for buffer in (one, other))
    different: int = _libc.memcmp(ctypes.byref(first), ctypes.byref(second), ctypes.c_size_t(length))
    return not different


class DatabaseFile:
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
            self._direct = None  # a file system in memory

    def ensure_written(self) -> None:
        """Write pages that differ between the page cache and the disk; no other writes may happen meanwhile. Raises OSError."""
        written = False
        for offset in self._missing():
            page = os.pread(self._cached, PAGE, offset)
            self.free(offset, PAGE)
            os.pwrite(self._cached, page, offset)
            written = True
        os.fsync(self._cached)
        if written and next(self._missing(), None) is not None:
            raise OSError(errno.EIO, "the disk does not hold what was written to it")

    def _missing(self) -> Iterator[int]:
        """Yield the offsets of pages that differ from those on the disk."""
        if self._direct is None:
            return
        # Buffers that are used again: the kernel would have to clear new memory for each chunk.
        with mmap.mmap(-1, CHUNK) as on_disk, mmap.mmap(-1, CHUNK) as in_cache:
            for start in range(0, os.fstat(self._cached).st_size, CHUNK):
                try:
                    read = os.preadv(self._direct, [on_disk], start)
                except OSError as error:
                    if error.errno == errno.EINVAL:
                        return  # the file system accepts O_DIRECT but does not support it
                    raise
                cached = os.preadv(self._cached, [in_cache], start)
                if read == cached and _are_equal(on_disk, in_cache, read):
                    continue
                for at in range(0, cached, PAGE):
                    end = min(at + PAGE, cached)
                    if on_disk[at : min(end, max(read, at))] != in_cache[at:end]:
                        yield start + at

    def read(self, offset: int, length: int) -> bytes:
        """Read a part of the file; raises OSError."""
        return os.pread(self._cached, length, offset)

    def free(self, offset: int, length: int) -> None:
        """Return the blocks of a part of the file to the file system (a hole, which reads as zeros). Raises OSError."""
        where, size = ctypes.c_longlong(offset), ctypes.c_longlong(length)
        if _libc.fallocate(self._cached, _KEEP_SIZE | _PUNCH_HOLE, where, size) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def close(self) -> None:
        os.close(self._cached)
        if self._direct is not None:
            os.close(self._direct)
