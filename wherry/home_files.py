"""Files in a person's home, which root writes: whoever owns the home can put links, pipes and devices there at any moment.

So folders and files are opened once, without following links, and what is open is written and given away.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_FILE_CLOCK = 5
"""CLOCK_REALTIME_COARSE, which files' times come from (linux/time.h)."""


def give(path: Path, data: bytes, uid: int, gid: int) -> bool:
    """Write a file that is not there, in a folder of the home that is made where it is missing, and give both away.

    False where there is something of that name already, or the folder is a link or no folder, or another than was made.
    """
    home = os.open(path.parent.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        made, now = False, time.clock_gettime_ns(_FILE_CLOCK)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path.parent.name, 0o750, dir_fd=home)
            made = True
        folder = os.open(path.parent.name, _FOLDER, dir_fd=home)
    except OSError:
        return False
    finally:
        os.close(home)
    try:
        if made and not _is_new(folder, now):
            return False
        if made:
            os.fchown(folder, uid, gid)
        return _write(folder, path.name, data, uid, gid)
    finally:
        os.close(folder)


def _is_new(folder: int, since: int) -> bool:
    """Tell whether an open folder was made here since a time in nanoseconds, and holds nothing.

    Another of root's may have been put in its place by then. A change of name changes no folder's own time.
    """
    found = os.fstat(folder)
    return found.st_uid == os.geteuid() and found.st_mtime_ns >= since and not os.listdir(folder)


def _write(folder: int, name: str, data: bytes, uid: int, gid: int) -> bool:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    except FileExistsError:
        return False
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.fchown(file.fileno(), uid, gid)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise
    return True


def holds(path: Path, data: bytes) -> bool:
    """Tell whether a path is a file with exactly this content."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.read(len(data) + 1) == data
