"""Free space of file systems, checked before a snapshot is written: the cluster's database may be on the same one."""

from __future__ import annotations

import os
from pathlib import Path

from wherry.errors import WherryError
from wherry.output import size

MARGIN = 128 << 20
"""Bytes that stay free after a snapshot, on a small file system an eighth of it: the store needs room for its log."""


def require_room(folder: Path, needed: int) -> None:
    """Raise WherryError if a file of that many bytes would not leave the margin free. Raises OSError."""
    found = os.statvfs(folder)
    if not found.f_blocks:
        raise WherryError(f"{folder} is a file system without room for files: choose another folder")
    free = found.f_bavail * found.f_frsize
    margin = min(MARGIN, found.f_blocks * found.f_frsize // 8)
    if free < needed + margin:
        raise WherryError(
            f"{folder} has {size(free)} free, and a snapshot of {size(needed)} must leave {size(margin)}: remove files, or "
            "snapshots with `wherry snapshot delete`"
        )
