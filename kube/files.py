"""Files written so that a crash leaves the old one or the new one, with the mode they are meant to have."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


def write_file(path: Path, data: bytes, mode: int, group: int = -1, *, keep_owner: bool = False) -> None:
    """Write a file so that it is there whole or not at all, never readable by more than `mode` allows.

    `group` is the number of the group that it gets; -1 leaves the process's own. With `keep_owner`, root gives it the
    owner and group of the file that it replaces.
    """
    with naming_file(path):
        _write_file(path, data, mode, group, keep_owner=keep_owner)


@contextlib.contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Name the file in errors that have none: those of writing to an open file, for example on a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno:
            error.filename = str(path)
        raise


def _write_file(path: Path, data: bytes, mode: int, group: int, *, keep_owner: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            owner, group = _owner(path) if keep_owner and os.geteuid() == 0 else (-1, group)
            if (owner, group) != (-1, -1):  # the control plane's unit has no such system call
                os.fchown(file.fileno(), owner, group)
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _owner(path: Path) -> tuple[int, int]:
    """Return the user and group that a file belongs to, -1 where there is none."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return -1, -1
    return found.st_uid, found.st_gid
