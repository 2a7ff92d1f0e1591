"""Reads an open directory in batches of entries (getdents(2)), because a directory may have millions."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from dataclasses import dataclass, field

BATCH_BYTES = 32 * 1024
"""Bytes of entries that are read at a time."""
_ENTRY = struct.Struct("=QqHB")  # inode, position of the next entry, length of this one, type
_UNKNOWN, _FOLDER = 0, 4

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class Level:
    """An open folder; `left` are the entries of the current batch, the next one last, `position` is that of the next batch."""

    name: str
    identity: tuple[int, int]
    left: list[tuple[str, bool, int]] = field(default_factory=list)
    position: int = 0
    ended: bool = False

    def next(self, descriptor: int) -> tuple[str, bool, int] | None:
        """Return the next entry and the position behind it; None at the end. Raise OSError."""
        while not self.left and not self.ended:
            if os.lseek(descriptor, 0, os.SEEK_CUR) != self.position:
                os.lseek(descriptor, self.position, os.SEEK_SET)
            self.left = _batch(descriptor)
            self.ended = not self.left
            if self.left:
                self.position = self.left[0][2]
            self.left = [entry for entry in self.left if entry[0] not in (".", "..")]
        return self.left.pop() if self.left else None

    def forget(self, position: int) -> None:
        """Drop the remaining entries of the batch, which are read again from a position."""
        self.left, self.position, self.ended = [], position, False

    def end(self) -> None:
        """Skip the remaining entries."""
        self.left, self.ended = [], True


def _batch(descriptor: int) -> list[tuple[str, bool, int]]:
    """Read the next entries of a folder, the first one last: name, whether it is a folder, position behind it.

    None at its end. Raise OSError; ENOENT if the folder was removed.
    """
    buffer = ctypes.create_string_buffer(BATCH_BYTES)
    length = _libc.getdents64(descriptor, buffer, BATCH_BYTES)
    if length < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    data, start, found = buffer.raw, 0, []
    while start < length:
        _, position, size, kind = _ENTRY.unpack_from(data, start)
        name = os.fsdecode(data[start + _ENTRY.size : data.index(b"\0", start + _ENTRY.size)])
        found.append((name, _is_folder(descriptor, name) if kind == _UNKNOWN else kind == _FOLDER, position))
        start += size
    return found[::-1]


def _is_folder(descriptor: int, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False
