"""Moves snapshot files between the private snapshot folder and any other folder, without trusting that folder.

A snapshot contains the cluster's Secrets, and a restore replaces all that the cluster stores. SQLite reads and writes files
beside a database (its log and journal), which other accounts may have created in a folder that they may write, such as /tmp.
So databases are opened in the private folder only; elsewhere a snapshot is bytes that are read and written through one
descriptor.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from wherry.errors import WherryError
from wherry.new_files import MODE, link_or_copy

WORKING = ".snapshot-"
"""Beginning of the names of working folders."""
UNLOCKED_SECONDS = 60.0
"""Age at which a working folder that is not locked is removed: a new one is locked after it was created."""


@contextlib.contextmanager
def private_folder(parent: Path, prefix: str = ".") -> Iterator[Path]:
    """Create a folder below `parent` that only this account may enter, for as long as the block runs."""
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as folder:
        yield Path(folder)


@contextlib.contextmanager
def working_folder(parent: Path) -> Iterator[Path]:
    """Create a private folder, locked for as long as the block runs, and remove those of processes that were killed."""
    for stale in parent.glob(f"{WORKING}*"):
        _remove_unlocked(stale)
    with private_folder(parent, WORKING) as folder:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield folder
        finally:
            os.close(lock)


def _remove_unlocked(folder: Path) -> None:
    """Remove a working folder that no process has locked, unless it was created within the last minute."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        found = os.fstat(descriptor)
        if found.st_uid == os.geteuid() and time.time() - found.st_ctime > UNLOCKED_SECONDS:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def open_file(path: Path, *, follow: bool = True) -> Iterator[IO[bytes]]:
    """Open a regular file for reading; raises WherryError, OSError. Blocks.

    Links are followed if a person named the file, not in the snapshot folder: another account than this may own it.
    """
    try:
        source = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    except FileNotFoundError as error:
        raise WherryError(f"there is no snapshot {path}") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise WherryError(f"{path} is no snapshot: it is a link") from error
        raise
    if not stat.S_ISREG(os.fstat(source).st_mode):
        os.close(source)
        raise WherryError(f"{path} is no snapshot: it is not a regular file")
    with open(source, "rb") as file:
        yield file


def copy_in(path: Path, folder: Path, count: Callable[[int], None] = lambda size: None, *, follow: bool = True) -> Path:
    """Copy a snapshot into a private folder, with its name, and return the copy; raises WherryError, OSError. Blocks.

    Each copied piece is counted; links are followed as by `open_file`.
    """
    with open_file(path, follow=follow) as file:
        copy = folder / path.name
        with open(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE), "wb") as target:
            while piece := file.read(1 << 20):
                target.write(piece)
                count(len(piece))
    return copy


def require_new(path: Path) -> None:
    """Raise WherryError if `publish` cannot create a file there, before there is something to lose."""
    if path.is_dir():
        raise WherryError(f"{path} is a folder: name a file in it")
    if os.path.lexists(path):
        raise WherryError(f"{path} exists: remove it or name another file")
    if not path.parent.is_dir():
        raise WherryError(f"{path} cannot be written: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise WherryError(f"{path} cannot be written: {path.parent} is read-only")


def publish(file: Path, path: Path) -> None:
    """Move a file of a private folder to `path`, where it appears whole, with mode 0600, or not at all. Blocks.

    Raises WherryError if something exists there, OSError.
    """
    link_or_copy(file, path)
