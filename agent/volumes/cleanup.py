"""Removes a pod's directory: unmounts first, then deletes, never through a link and never into a mount.

The containers are gone by then, but what they wrote is hostile all the same: links to /etc, mounts that came in by propagation.
Mounts are taken from the kernel's list and detached without following links; if one is still there afterwards, nothing is
deleted. Deletion walks by directory descriptors (walk.py) and leaves links' targets alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from agent.volumes import mounts
from agent.volumes.walk import remove

log = logging.getLogger(__name__)


class CleanupError(Exception):
    """Something is still mounted below the folder."""


def unmount_below(folder: Path) -> None:
    """Unmount everything at and below the folder, as far as that can be done."""
    for point in mounts.mount_points(folder):
        with contextlib.suppress(OSError):
            mounts.unmount(point)


def remove_tree(folder: Path) -> None:
    """Unmount everything below the folder and delete it. Raise CleanupError while a mount stays."""
    if not os.path.lexists(folder):
        return
    if folder.is_symlink():
        raise CleanupError(f"{folder} is a link")
    unmount_below(folder)
    left = mounts.mount_points(folder)
    if left:
        raise CleanupError(f"still mounted: {', '.join(left)}")
    remove(folder)


def orphans(pods_dir: Path, known: set[str]) -> list[str]:
    """List the UIDs that have a folder but are not known."""
    if not pods_dir.is_dir():
        return []
    return [entry.name for entry in os.scandir(pods_dir) if entry.name not in known]
