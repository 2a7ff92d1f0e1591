"""Walking a folder that pods write, at any depth: by directory descriptors, never through a link, never into a mount.

One descriptor is open at a time and nothing recurses: a pod can nest folders deeper than Python's stack or the limit on open
files. The way up is "..", and is taken only into the folder that the walk came from. A folder may have millions of entries:
the kernel is asked for a few hundred at a time, and no more than `HELD` are kept for the way up.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

HELD = 50_000
"""Entries kept of folders above the one that the walk is in; beyond that they are read again."""
BATCH_BYTES = 32 * 1024
"""How much is asked of the kernel at a time (getdents(2))."""
PASSES = 16
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ENTRY = struct.Struct("=QqHB")  # inode, position of the next entry, length of this one, type
_UNKNOWN, _FOLDER = 0, 4

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class _Level:
    """A folder that the walk is in; `left` are entries to come, the next one last, and `position` is what follows them."""

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
        """Let go of the entries that are to come: they are read again from a position."""
        self.left, self.position, self.ended = [], position, False


def entries_below(folder: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield each entry below a folder after what is in it: descriptor of its folder, name, whether it is a folder.

    What is mounted below is left out with its mount point. Raise OSError.
    """
    descriptor = os.open(folder, _FLAGS)
    try:
        mount, held = _mount_of(descriptor), 0
        levels = [_Level("", _identity(descriptor))]
        while True:
            level = levels[-1]
            entry = level.next(descriptor)
            if entry is None:
                levels.pop()
                if not levels:
                    return
                above = os.open("..", _FLAGS, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = above
                held -= len(levels[-1].left)
                if _identity(descriptor) != levels[-1].identity:
                    raise OSError(errno.ESTALE, "folder was moved during the walk", level.name)
                yield descriptor, level.name, True
                continue
            name, is_folder, position = entry
            if not is_folder:
                yield descriptor, name, False
                continue
            try:
                below = os.open(name, _FLAGS, dir_fd=descriptor)
            except FileNotFoundError:
                continue  # removed meanwhile
            except NotADirectoryError:
                yield descriptor, name, False  # a link or file took its place
                continue
            if _mount_of(below) != mount:
                os.close(below)
                continue
            os.close(descriptor)
            descriptor = below
            if held + len(level.left) > HELD:
                level.forget(position)
            held += len(level.left)
            levels.append(_Level(name, _identity(descriptor)))
    finally:
        os.close(descriptor)


def remove(folder: Path) -> None:
    """Delete a folder and what is in it, as far as that can be done, never what a link names or what is mounted.

    Raise the first OSError where something stays.
    """
    for _ in range(PASSES):
        removed, failed = _remove_below(folder)
        # Some file systems number entries anew when others go, so that a walk that reads again misses some.
        if failed is None or failed.errno != errno.ENOTEMPTY or not removed:
            break
    if failed is not None:
        raise failed
    os.rmdir(folder)


def _remove_below(folder: Path) -> tuple[int, OSError | None]:
    """Return how many entries were deleted, and the first error."""
    removed, failed = 0, None
    for descriptor, name, is_folder in entries_below(folder):
        try:
            (os.rmdir if is_folder else os.unlink)(name, dir_fd=descriptor)
            removed += 1
        except FileNotFoundError:
            pass
        except OSError as error:
            failed = failed or error
    return removed, failed


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _batch(descriptor: int) -> list[tuple[str, bool, int]]:
    """Read the next entries of a folder, the first one last; none at its end. Raise OSError."""
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


def _mount_of(descriptor: int) -> str:
    """Return the ID of the mount that a descriptor is in: a device's number would not tell of bind mounts."""
    with open(f"/proc/self/fdinfo/{descriptor}") as lines:
        return next(line for line in lines if line.startswith("mnt_id:"))
