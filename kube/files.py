"""Files written so that a crash leaves the old one or the new one, with the mode they are meant to have."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_file(path: Path, data: bytes, mode: int, group: int = -1) -> None:
    """Write a file so that it is there whole or not at all, never readable by more than `mode` allows.

    `group` is the number of the group that it gets; -1 leaves the process's own.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchown(file.fileno(), -1, group)
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
