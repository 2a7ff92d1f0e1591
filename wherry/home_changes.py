"""Changes of a file in a user's home directory by root: read, edited, copied with the date, and replaced whole.

Everything is done in the folder that was opened once, without following links (wherry/home_files.py). A file of another user is
not read, because its content would be given away. `~/.kube/config.lock` is kubectl's lock (client-go's loader): kubectl refuses
to write while it exists. Programs that do not know it are noticed by the file's number, time and size.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

from wherry import os_errors
from wherry.errors import WherryError
from wherry.home_files import opened, read, unfinished

_SECONDS = 5
"""Seconds after the date of a change that the name of its copy may have, for changes within one second."""
MAX_BYTES = 1 << 20
LOCK_SECONDS = 1.0
_DATED, _DATE = "wherry-backup", "%Y%m%dT%H%M%SZ"


class LeftError(WherryError):
    """A file is left as it is; the message is the reason."""


def change(path: Path, edit: Callable[[bytes], bytes], uid: int, gid: int, now: datetime) -> bool:
    """Replace a user's file by what `edit` returns of its content, keeping one dated copy; False if nothing changes.

    The new file and the copy are readable by the user alone. Raise FileNotFoundError if there is no such file, LeftError if
    it is another's, no regular file, locked or not writable, and what `edit` raises.
    """
    try:
        with opened(path) as folder:
            if os.fstat(folder).st_uid not in (uid, os.geteuid()):
                raise LeftError("its folder is another user's")
            before, _ = _read(folder, path.name, uid)
            if edit(before) == before:
                return False
            with _locked(folder, path.name, uid, gid):
                before, found = _read(folder, path.name, uid)
                after = edit(before)
                if after == before:
                    return False
                _copy(folder, path.name, before, uid, gid, now)
                _replace(folder, path.name, after, uid, gid, found)
                return True
    except FileNotFoundError:
        raise
    except NotADirectoryError as error:
        raise LeftError("its folder is a link or no folder") from error
    except OSError as error:
        raise LeftError(f"it cannot be changed ({os_errors.reason(error)})") from error


def _read(folder: int, name: str, uid: int) -> tuple[bytes, os.stat_result]:
    try:
        with read(folder, name) as (file, found):
            if file is None:
                raise LeftError("it is no regular file")
            if found.st_uid != uid:
                raise LeftError("it is another user's")
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise LeftError("it is a link") from error
    if len(data) > MAX_BYTES:
        raise LeftError(f"it is larger than {MAX_BYTES >> 20} MiB")
    return data, found


@contextlib.contextmanager
def _locked(folder: int, name: str, uid: int, gid: int) -> Iterator[None]:
    """Hold kubectl's lock of a file; LeftError if another has it for a second."""
    lock, end = f"{name}.lock", time.monotonic() + LOCK_SECONDS
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            descriptor = os.open(lock, flags, 0o600, dir_fd=folder)
            break
        except FileExistsError:
            if time.monotonic() >= end:
                raise LeftError(f"{lock} beside it exists: remove that if no kubectl runs") from None
        time.sleep(LOCK_SECONDS / 10)
    try:
        try:
            os.fchown(descriptor, uid, gid)
        finally:
            os.close(descriptor)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(lock, dir_fd=folder)


def copies(path: Path, uid: int) -> dict[Path, bytes]:
    """Return the dated copies of a user's file that were kept, with their contents. Raise LeftError, OSError."""
    found = {}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), opened(path) as folder:
        for name in _dated(folder, path.name):
            found[path.with_name(name)], _ = _read(folder, name, uid)
    return found


def _copy(folder: int, name: str, data: bytes, uid: int, gid: int, now: datetime) -> None:
    """Write a copy with the date in its name, and remove the former ones: what they hold are credentials."""
    for seconds in range(_SECONDS):
        copy = f"{name}.{_DATED}-{now + timedelta(seconds=seconds):{_DATE}}"
        with contextlib.suppress(FileExistsError), unfinished(folder, name, data, uid, gid) as written:
            os.link(written, copy, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            break
    else:
        raise LeftError(f"no copy of it can be kept: {copy} exists")
    for former in _dated(folder, name):
        if former != copy:
            with contextlib.suppress(OSError):
                os.unlink(former, dir_fd=folder)


def _dated(folder: int, name: str) -> list[str]:
    form = re.compile(rf"{re.escape(name)}\.{_DATED}-[0-9]{{8}}T[0-9]{{6}}Z")
    return sorted(filter(form.fullmatch, os.listdir(folder)))


def _replace(folder: int, name: str, data: bytes, uid: int, gid: int, before: os.stat_result) -> None:
    """Replace a file if it still is what was read; LeftError if it has changed meanwhile."""
    with unfinished(folder, name, data, uid, gid) as written:
        found = os.lstat(name, dir_fd=folder)
        if (found.st_ino, found.st_mtime_ns, found.st_size) != (before.st_ino, before.st_mtime_ns, before.st_size):
            raise LeftError("another program has changed it meanwhile")
        os.rename(written, name, src_dir_fd=folder, dst_dir_fd=folder)
