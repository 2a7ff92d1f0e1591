"""Files in a user's home directory, written and removed by root: the user can create links and pipes there at any moment.

So folders and files are opened once, without following links, and what is open is written and given away, read, or emptied.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_UNFINISHED = ".wherry"
"""Ends the name that a folder or file has until it is given away."""
_FILE_CLOCK = 5
"""CLOCK_REALTIME_COARSE, which files' times come from (linux/time.h)."""


def user_kubeconfig() -> tuple[Path, pwd.struct_passwd]:
    """Return the default kubeconfig path and the account of the user who called sudo, root's if there is no such account."""
    found = kubeconfig_of(os.environ.get("SUDO_USER") or "root")
    return found or _kubeconfig(pwd.getpwuid(0))


def kubeconfig_of(name: str) -> tuple[Path, pwd.struct_passwd] | None:
    """Return the default kubeconfig path and the account of a name; None if there is no such account."""
    try:
        return _kubeconfig(pwd.getpwnam(name))
    except KeyError:
        return None


def _kubeconfig(user: pwd.struct_passwd) -> tuple[Path, pwd.struct_passwd]:
    return Path(user.pw_dir) / ".kube" / "config", user


def give(path: Path, data: bytes, uid: int, gid: int) -> bool:
    """Write a file that is not there, in a folder of the home that is made where it is missing, and give both away.

    Both get their names when they are given away: whoever is cut or fails leaves nothing of root's under them, and the next
    call removes what it left. False if there is something of that name already, or the folder is a link or no folder, or
    another than was made.
    """
    try:
        home = os.open(path.parent.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            folder = _folder(home, path.parent.name, uid, gid)
        finally:
            os.close(home)
    except OSError:
        return False
    try:
        return _write(folder, path.name, data, uid, gid)
    finally:
        os.close(folder)


def _folder(home: int, name: str, uid: int, gid: int) -> int:
    """Open a folder of the home, which is made and given away where it is missing. Raise OSError."""
    with contextlib.suppress(FileNotFoundError):
        return os.open(name, _FOLDER, dir_fd=home)
    unfinished, now = f"{name}{_UNFINISHED}", time.clock_gettime_ns(_FILE_CLOCK)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(unfinished, dir_fd=home)
    os.mkdir(unfinished, 0o750, dir_fd=home)
    folder = os.open(unfinished, _FOLDER, dir_fd=home)
    try:
        if not _is_new(folder, now):
            raise FileExistsError(unfinished)
        os.fchown(folder, uid, gid)
        os.rename(unfinished, name, src_dir_fd=home, dst_dir_fd=home)  # at most an empty folder is replaced
    except BaseException:
        os.close(folder)
        with contextlib.suppress(OSError):
            os.rmdir(unfinished, dir_fd=home)
        raise
    return folder


def _is_new(folder: int, since: int) -> bool:
    """Return whether an open folder was made here since a time in nanoseconds, and holds nothing.

    Another of root's may have been put in its place by then. A change of name changes no folder's own time.
    """
    found = os.fstat(folder)
    return found.st_uid == os.geteuid() and found.st_mtime_ns >= since and not os.listdir(folder)


def _write(folder: int, name: str, data: bytes, uid: int, gid: int) -> bool:
    _discard(folder, f".{name}{_UNFINISHED}")
    if _exists(name, folder):
        return False
    try:
        with unfinished(folder, name, data, uid, gid) as written:
            os.link(written, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        return False
    return True


@contextlib.contextmanager
def unfinished(folder: int, name: str, data: bytes, uid: int, gid: int) -> Iterator[str]:
    """Write a file that is given away and readable by its owner alone, and lend its unfinished name. Raise OSError."""
    written = f".{name}{_UNFINISHED}"
    _discard(folder, written)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(written, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.fchown(file.fileno(), uid, gid)
        yield written
    finally:
        with contextlib.suppress(OSError):
            os.unlink(written, dir_fd=folder)


def _discard(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _exists(name: str, folder: int) -> bool:
    try:
        os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def remove(path: Path, data: bytes, uid: int) -> bool:
    """Remove a file with exactly this content from a folder of the home; return whether it was removed.

    File and folder have to be the user's or root's. In a folder of the user's any other file may be in its place by then, but
    none that the user could not remove. Raise OSError if the file system refuses it.
    """
    owners = (uid, os.geteuid())
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), opened(path) as folder:
        inode = _inode(folder, path.name, data, owners)
        if os.fstat(folder).st_uid in owners and inode is not None:
            if os.lstat(path.name, dir_fd=folder).st_ino == inode:
                os.unlink(path.name, dir_fd=folder)
                return True
    return False


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """Lend the folder of a file, which is directly in the home and no link. Raise OSError."""
    home = os.open(path.parent.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        folder = os.open(path.parent.name, _FOLDER, dir_fd=home)
    finally:
        os.close(home)
    try:
        yield folder
    finally:
        os.close(folder)


def _inode(folder: int, name: str, data: bytes, owners: tuple[int, int]) -> int | None:
    """Return the number of a file of these owners with exactly this content; None for any other."""
    with contextlib.suppress(OSError), read(folder, name) as (file, found):
        if file is not None and found.st_uid in owners and file.read(len(data) + 1) == data:
            return found.st_ino
    return None


@contextlib.contextmanager
def read(folder: int, name: str) -> Iterator[tuple[BinaryIO | None, os.stat_result]]:
    """Lend a file of a folder, None if it is no regular one, and its state. Raise OSError, of a link too."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        yield None, found
        return
    with os.fdopen(descriptor, "rb") as file:
        yield file, found
