"""Resolves symbolic links that pods create, as the kernel does: 40 at most; a chain of them needs no stack."""

from __future__ import annotations

import errno
import os
from pathlib import Path

MAX_LINKS = 40
"""Most links in a path (path_resolution(7), MAXSYMLINKS)."""


def resolve(path: str | Path) -> Path:
    """Return an absolute path without links, as far as it exists. Blocks. Raise OSError: ELOOP for too many links."""
    found, left, links = "/", os.fspath(path).split("/")[::-1], 0
    while left:
        part = left.pop()
        if part in ("", "."):
            continue
        if part == "..":
            found = os.path.dirname(found)
            continue
        here = os.path.join(found, part)
        try:
            target = os.readlink(here)
        except OSError:  # it is no link, or not there
            found = here
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
        if target.startswith("/"):
            found = "/"
        left += target.split("/")[::-1]
    return Path(found)
