"""Walks a directory that pods write, at any depth: by directory descriptors, never through a link, never into a mount.

Few descriptors are open at a time and nothing recurses: a pod can nest directories deeper than Python's stack or the limit on
open files. The uppermost directories stay open for the way up. Below them the way up is "..", and is taken only into the
directory that the walk came from: out of one that was moved the walk continues in the nearest directory above that is still in
place. What is removed meanwhile is no error; a directory that cannot be read is an error, reported after all else was found. A
directory may have millions of entries: they are read a few hundred at a time, and no more than `HELD` are kept for the way up.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from agent.files.directory import Level
from agent.files.levels import Levels
from agent.thread_slots import pause

HELD = 50_000
"""Entries kept of folders above the one that the walk is in; beyond that they are read again."""
OPEN = 16
"""Folders that stay open while the walk is below them: what a pod moves below these does not end the walk in them."""
REOPENED = 1_000_000
"""Folders opened again by name after moves, in all of a walk; from then on it continues in the lowest that stayed open."""
PASSES = 16
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Walk:
    """The position of a walk: `levels` from the top to the current directory, whose descriptor is `at`."""

    def __init__(self, folder: Path) -> None:
        self.at, identity, self.mount = _open(folder)
        self.kept: list[int] = []
        """Descriptors of the uppermost levels, without the last level's."""
        self.levels = Levels(Level("", identity))
        self.failed: OSError | None = None
        """First error of the walk: entries may be missing."""
        self._remaining, self._reopened = 0, 0

    def fail(self, error: OSError) -> None:
        self.failed = self.failed or error

    def next(self) -> tuple[str, bool, int] | None:
        """Return the next entry of the folder that the walk is in; None if there is none, or none can be read."""
        level = self.levels.last
        try:
            return level.next(self.at)
        except OSError as error:
            level.end()
            if _is_linked(self.at):  # one that was removed has no entries
                self.fail(error)
            return None

    def down(self, name: str, position: int) -> bool:
        """Enter a folder, unless something is mounted there. Raise OSError."""
        below, identity, mount = _open(name, self.at)
        if mount != self.mount:
            os.close(below)
            return False
        level = self.levels.last
        if self._remaining + len(level.left) > HELD or self.levels.packs:
            level.forget(position)
        self._remaining += len(level.left)
        self._enter(below, Level(name, identity))
        return True

    def _enter(self, below: int, level: Level) -> None:
        if len(self.levels) <= OPEN:
            self.kept.append(self.at)
        else:
            os.close(self.at)
        self.at = below
        self.levels.push(level)

    def up(self) -> bool:
        """Leave a folder; return whether it is still in the one that the walk then is in."""
        left, below = self.levels.pop(), self.at
        try:
            if len(self.kept) == len(self.levels):
                self.at = self.kept.pop()
                there = _is(left, self.at)
            else:
                there = self._climb(below)
            self._remaining -= len(self.levels.last.left)
            if not there and _is_linked(below):
                self.fail(_moved(left.name))
        finally:
            os.close(below)
        return there

    def _climb(self, below: int) -> bool:
        """Go to the folder above by "..", or to the nearest that is where it was."""
        with contextlib.suppress(OSError):  # where nothing is above, or nothing that can be read
            above, identity, _ = _open("..", below)
            if identity == self.levels.last.identity:
                self.at = above
                return True
            os.close(above)
        way = self.levels.split(len(self.kept))
        self.at = self.kept.pop()
        for level in way:
            if not self._reopen(level):
                self.fail(_moved(level.name))  # or removed: that is no longer known
                break
        self._remaining = self.levels.remaining
        return False

    def _reopen(self, level: Level) -> bool:
        """Enter a folder again, if it is where it was."""
        if self._reopened >= REOPENED:
            return False
        self._reopened += 1
        pause()
        try:
            below, identity, _ = _open(level.name, self.at)
        except OSError:
            return False
        if identity != level.identity:
            os.close(below)
            return False
        self._enter(below, level)
        return True

    def close(self) -> None:
        for descriptor in (self.at, *self.kept):
            os.close(descriptor)


def entries_below(
    folder: Path, on_vanished: Callable[[str], None] = lambda name: None
) -> Iterator[tuple[int, str, bool]]:
    """Yield each entry below a folder after what is in it: descriptor of its folder, name, whether it is a folder.

    What is mounted below is left out with its mount point. A folder that is gone before the walk is in it is reported. Raise
    OSError after all else where entries may be missing: ESTALE for a folder that was moved while the walk was in it.
    """
    walk = _Walk(folder)
    try:
        while True:
            pause()
            level = walk.levels.last
            entry = walk.next()
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
            except OSError as error:
                walk.fail(error)
        if walk.failed is not None:
            raise walk.failed
    finally:
        walk.close()


def remove(folder: Path) -> None:
    """Delete a folder and what is in it, as far as that can be done, never what a link names or what is mounted.

    Raise the first OSError where something stays.
    """
    for _ in range(PASSES):
        removed, failed = _remove_below(folder)
        # Some file systems renumber entries when others are removed, so that a walk that reads again misses some.
        if failed is None or failed.errno not in (errno.ENOTEMPTY, errno.ESTALE) or not removed:
            break
    if failed is not None:
        raise failed
    os.rmdir(folder)


def _remove_below(folder: Path) -> tuple[int, OSError | None]:
    """Return how many entries were deleted, and the first error."""
    removed, failed = 0, None
    try:
        for descriptor, name, is_folder in entries_below(folder):
            try:
                (os.rmdir if is_folder else os.unlink)(name, dir_fd=descriptor)
                removed += 1
            except FileNotFoundError:
                pass
            except OSError as error:
                failed = failed or error
    except OSError as error:
        failed = failed or error
    return removed, failed


def _open(name: str | Path, at: int | None = None) -> tuple[int, tuple[int, int], str]:
    """Open a folder; return its descriptor, its identity and the mount that it is in. Raise OSError."""
    descriptor = os.open(name, _FLAGS, dir_fd=at)
    try:
        found = os.fstat(descriptor)
        return descriptor, (found.st_dev, found.st_ino), _mount_of(descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def _is_linked(descriptor: int) -> bool:
    """Return whether an open directory still has a name, as far as that is known."""
    try:
        return os.fstat(descriptor).st_nlink > 0
    except OSError:
        return True


def _moved(name: str) -> OSError:
    return OSError(errno.ESTALE, "folder was moved during the walk", name)


def _is(level: Level, descriptor: int) -> bool:
    """Return whether a folder is still in the one above it."""
    try:
        found = os.stat(level.name, dir_fd=descriptor, follow_symlinks=False)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == level.identity


def _mount_of(descriptor: int) -> str:
    """Return the ID of a descriptor's mount: a device's number would not distinguish bind mounts."""
    with open(f"/proc/self/fdinfo/{descriptor}") as lines:
        return next(line for line in lines if line.startswith("mnt_id:"))
