"""Reads files that a person names to a limit: a device has no end, and a wrong file may be larger than memory."""

from __future__ import annotations

import errno
from pathlib import Path


def read_text(path: Path, most: int) -> str:
    """Return the text of a file or pipe; raises OSError (EFBIG) if it has more than `most` bytes, UnicodeDecodeError."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most >> 20} MiB", str(path))
    return data.decode()
