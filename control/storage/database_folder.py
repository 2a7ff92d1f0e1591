"""Copies of a database out of its folder, and files into it, for root: the control plane's account owns that folder.

SQLite opens files by name, and follows links, also those that another account puts there between two calls. So root opens
databases in a private folder alone. What it reads from the other one, it reads through a descriptor that is no link, and what
it writes there is renamed into it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from control.storage import schema
from control.storage.store import Unavailable

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open a folder and yield its descriptor; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def size(path: Path) -> int:
    """Return the size of a database with its log in bytes, 0 if there is none."""
    found = 0
    for suffix in ("", "-wal"):
        with contextlib.suppress(FileNotFoundError):
            found += os.lstat(f"{path}{suffix}").st_size
    return found


def copy_database(path: Path, target: Path) -> bool:
    """Copy a database that no process uses, with its log, to a path in a private folder; return False if there is none.

    Raises Unavailable if one of the files is a link or another kind of file, OSError. Blocks.
    """
    with opened(path.parent) as folder:
        found = _copy_out(folder, path, "", target)
        return found and (_copy_out(folder, path, "-wal", target) or True)


def _copy_out(folder: int, path: Path, suffix: str, target: Path) -> bool:
    try:
        source = os.open(path.name + suffix, _READ, dir_fd=folder)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Unavailable(f"{path}{suffix} is a link, not a file of the database") from error
        raise
    with open(source, "rb") as file:
        if not stat.S_ISREG(os.fstat(source).st_mode):
            raise Unavailable(f"{path}{suffix} is not a regular file")
        with open(os.open(f"{target}{suffix}", _NEW, schema.MODE), "wb") as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
    return True


def move_in(file: Path, folder: int, name: str) -> None:
    """Move a file of a private folder into an open folder, over a file of that name; raises OSError. Blocks."""
    sync(file)
    try:
        os.replace(file, name, dst_dir_fd=folder)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        partial = f"{name}.partial"
        remove(folder, partial)
        with file.open("rb") as source, open(os.open(partial, _NEW, schema.MODE, dir_fd=folder), "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
            target.flush()
            os.fsync(target.fileno())
        os.replace(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


def remove(folder: int, *names: str) -> None:
    """Remove files of an open folder, if they exist; raises OSError."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)


def sync(path: Path) -> None:
    """Sync a file or folder to the disk; blocks."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
