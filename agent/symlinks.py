"""Resolves symbolic links that pods create, as the kernel does: 40 at most; a chain of them needs no stack.

A path and each intermediate one are as long as the kernel allows, and the parts of all links together are limited: each part
takes a system call whose cost grows with the path.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from agent import thread_slots

MAX_LINKS = 40
"""Most links in a path (path_resolution(7), MAXSYMLINKS)."""
MAX_BYTES = 4095
"""Longest path (PATH_MAX with its null byte)."""
MAX_PARTS = 4096
"""Most parts of a path and of all its links: twice what the longest path has."""


def resolve(path: str | Path) -> Path:
    """Return an absolute path without links, as far as it exists. Blocks. Raise OSError: ELOOP for too many links,
    ENAMETOOLONG for a path that is too long.
    """
    text = os.fspath(path)
    _check_length(text)
    found, left, links, parts = "/", text.split("/")[::-1], 0, 0
    while left:
        part = left.pop()
        if part in ("", "."):
            continue
        parts += 1
        if parts > MAX_PARTS:
            raise _too_long()
        thread_slots.pause()
        if part == "..":
            found = os.path.dirname(found)
            continue
        here = os.path.join(found, part)
        _check_length(here)
        try:
            target = os.readlink(here)
        except OSError:  # it is no link, or not there
            found = here
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), text)
        if target.startswith("/"):
            found = "/"
        left += target.split("/")[::-1]
    return Path(found)


def _check_length(path: str) -> None:
    if len(path) > MAX_BYTES or len(os.fsencode(path)) > MAX_BYTES:
        raise _too_long()


def _too_long() -> OSError:
    return OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))  # without the path: it may have a megabyte
