"""Reserved disk space next to the database, which the engine releases when the disk is full and allocates again later.

In WAL mode SQLite needs space for deletions, so a disk filled by history could never be compacted. The blocks of this
file are that space: as much as the log can hold, because a checkpoint may write the whole log into new pages of the
database. A file of length 0 means that the space was released, for the next process too.

A file system may accept an allocation without reserving blocks (compression, copy on write). The number of the file's
blocks shows that; the file is then filled with random bytes.
"""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)

MAX_BYTES = 16 << 20
SHARE = 8
"""Divisor: on a small disk, the reserve is an eighth of it."""
_BLOCK, _CHUNK = 4096, 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """The reserve of one database. All methods belong to the thread that writes it."""

    def __init__(self, database: Path) -> None:
        """Open the file, creating it with mode 0600, and allocate it if there is space; raises OSError."""
        self._path = database.with_name(database.name + ".reserve")
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._supported = True
            space = os.fstatvfs(self._descriptor)
            self.size = max(min(MAX_BYTES, space.f_blocks * space.f_frsize // SHARE) // _BLOCK, 1) * _BLOCK
            """Bytes."""
            self.missing = not self._is_allocated()
            """True while the space is released, or if there never was enough."""
            if self.missing:
                self.allocate()
        except BaseException:
            self.close()
            raise

    @property
    def needed(self) -> int:
        """Bytes that must be free for an allocation: the log needs the same amount."""
        return 2 * self.size

    def allocate(self) -> bool:
        """Allocate the space if `needed` bytes are free; return whether the reserve exists."""
        space = os.fstatvfs(self._descriptor)
        free = (space.f_bavail if os.geteuid() else space.f_bfree) * space.f_frsize
        if self._supported and free < self.needed:
            return False
        try:
            if self._supported:
                self._fill()
        except OSError as error:
            os.ftruncate(self._descriptor, 0)
            if error.errno in _FULL:  # a quota, which the file system does not report
                return False
            log.warning("no disk space can be reserved in %s: %s", self._path, error)
            self._supported = False
        self.missing = False
        return True

    def _fill(self) -> None:
        os.posix_fallocate(self._descriptor, 0, self.needed)
        os.ftruncate(self._descriptor, self.size)
        os.fsync(self._descriptor)
        if not self._is_allocated():
            for offset in range(0, self.size, _CHUNK):
                os.pwrite(self._descriptor, os.urandom(min(_CHUNK, self.size - offset)), offset)
            os.fsync(self._descriptor)

    def _is_allocated(self) -> bool:
        found = os.fstat(self._descriptor)
        return found.st_size >= self.size and found.st_blocks * 512 >= self.size

    def release(self) -> bool:
        """Release the space; return False if it was released before. Raises OSError."""
        if os.fstat(self._descriptor).st_size == 0:
            return False
        os.ftruncate(self._descriptor, 0)
        os.fsync(self._descriptor)
        self.missing = True
        return True

    def close(self) -> None:
        os.close(self._descriptor)
