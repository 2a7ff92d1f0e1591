"""Walking a folder that pods write, at any depth: by directory descriptors, never through a link, never into a mount.

Few descriptors are open at a time and nothing recurses: a pod can nest folders deeper than Python's stack or the limit on
open files. The uppermost folders stay open for the way up. Below them it is "..", and is taken only into the folder that the
walk came from: out of one that was moved the walk goes on in the nearest folder above that is still where it was. A folder
may have millions of entries: the kernel is asked for a few hundred at a time, and no more than `HELD` are kept for the way up.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

HELD = 50_000
"""Entries kept of folders above the one that the walk is in; beyond that they are read again."""
BATCH_BYTES = 32 * 1024
"""How much is asked of the kernel at a time (getdents(2))."""
OPEN = 16
"""Folders that stay open while the walk is below them: what a pod moves below these does not end the walk in them."""
REOPENED = 1_000_000
"""Folders opened again by name after moves, in all of a walk; from then on it goes on in the lowest that stayed open."""
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


class _Walk:
    """Where a walk is: `levels` from the top to the folder that it is in, whose descriptor is `at`."""

    def __init__(self, folder: Path) -> None:
        self.at = os.open(folder, _FLAGS)
        self.kept: list[int] = []
        """Descriptors of the uppermost levels, without the last level's."""
        self.mount = _mount_of(self.at)
        self.levels = [_Level("", _identity(self.at))]
        self.moved: str | None = None
        """A folder that was moved while the walk was in it."""
        self._held, self._reopened = 0, 0

    def down(self, name: str, position: int) -> bool:
        """Enter a folder, unless something is mounted there. Raise OSError."""
        below = os.open(name, _FLAGS, dir_fd=self.at)
        if _mount_of(below) != self.mount:
            os.close(below)
            return False
        level = self.levels[-1]
        if self._held + len(level.left) > HELD:
            level.forget(position)
        self._held += len(level.left)
        self._enter(below, _Level(name, _identity(below)))
        return True

    def _enter(self, below: int, level: _Level) -> None:
        if len(self.levels) <= OPEN:
            self.kept.append(self.at)
        else:
            os.close(self.at)
        self.at = below
        self.levels.append(level)

    def up(self) -> bool:
        """Leave a folder; return whether it is still in the one that the walk then is in. Raise OSError."""
        left, below = self.levels.pop(), self.at
        try:
            if len(self.kept) == len(self.levels):
                self.at = self.kept.pop()
                there = _is(left, self.at)
            else:
                there = self._climb(below)
            self._held -= len(self.levels[-1].left)
            if not there and os.fstat(below).st_nlink:
                self.moved = left.name
        finally:
            os.close(below)
        return there

    def _climb(self, below: int) -> bool:
        """Go to the folder above by "..", or to the nearest that is where it was."""
        with contextlib.suppress(OSError):  # of a folder that was removed there is none
            above = os.open("..", _FLAGS, dir_fd=below)
            if _identity(above) == self.levels[-1].identity:
                self.at = above
                return True
            os.close(above)
        way, self.levels = self.levels[len(self.kept) :], self.levels[: len(self.kept)]
        self.at = self.kept.pop()
        for level in way:
            if self._reopened >= REOPENED:
                break
            self._reopened += 1
            try:
                below = os.open(level.name, _FLAGS, dir_fd=self.at)
            except OSError:
                break
            if _identity(below) != level.identity:
                os.close(below)
                break
            self._enter(below, level)
        self._held = sum(len(level.left) for level in self.levels)
        return False

    def close(self) -> None:
        for descriptor in (self.at, *self.kept):
            os.close(descriptor)


def entries_below(
    folder: Path, on_vanished: Callable[[str], None] = lambda name: None
) -> Iterator[tuple[int, str, bool]]:
    """Yield each entry below a folder after what is in it: descriptor of its folder, name, whether it is a folder.

    What is mounted below is left out with its mount point. A folder that is gone before the walk is in it is reported. Raise
    OSError; ESTALE after all else where a folder was moved while the walk was in it, so that entries may be missing.
    """
    walk = _Walk(folder)
    try:
        while True:
            level = walk.levels[-1]
            entry = level.next(walk.at)
            if entry is None:
                if len(walk.levels) == 1:
                    break
                if walk.up():
                    yield walk.at, level.name, True
                continue
            name, is_folder, position = entry
            if not is_folder:
                yield walk.at, name, False
                continue
            try:
                walk.down(name, position)
            except FileNotFoundError:
                on_vanished(name)
            except NotADirectoryError:
                yield walk.at, name, False  # a link or file took its place
        if walk.moved is not None:
            raise OSError(errno.ESTALE, "folder was moved during the walk", walk.moved)
    finally:
        walk.close()


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


def _is(level: _Level, descriptor: int) -> bool:
    """Return whether a folder is still in the one above it."""
    try:
        found = os.stat(level.name, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == level.identity


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
