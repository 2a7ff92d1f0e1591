"""Removes a pod's directory: unmounts first, then deletes, never through a link and never into a mount.

The containers are gone by then, but their files may be malicious: links to /etc, mounts received by propagation.
Mounts are taken from the kernel's list and detached without following links; if one is still there afterwards, nothing is
deleted. Deletion walks by directory descriptors (files/walk.py) and leaves links' targets alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from agent.files.walk import remove
from agent.volumes import mounts

log = logging.getLogger(__name__)


SUB_PATHS = "volume-subpaths"
"""Folder of a pod for what is bound out of its volumes, by the volume's name."""
EMPTY_DIR = "kubernetes.io~empty-dir"


class CleanupError(Exception):
    """Something is still mounted below the folder."""


def unmount_below(folder: Path) -> bool:
    """Unmount everything at and below the folder, as far as that can be done; return whether anything was mounted."""
    points = mounts.mount_points(folder)
    for point in points:
        with contextlib.suppress(OSError):
            mounts.unmount(point)
    return bool(points)


def remove_tree(folder: Path) -> None:
    """Unmount everything below the folder and delete it. Raise CleanupError while a mount stays."""
    if not os.path.lexists(folder):
        return
    if folder.is_symlink():
        raise CleanupError(f"{folder} is a link")
    if unmount_below(folder) and (left := mounts.mount_points(folder)):
        raise CleanupError(f"still mounted: {', '.join(left)}")
    remove(folder)


def remove_empty_dirs(folder: Path) -> None:
    """Remove a pod's emptyDir volumes, with what is bound out of them, as far as that can be done."""
    for volume in sorted((folder / "volumes" / EMPTY_DIR).glob("*")):
        unmount_below(folder / SUB_PATHS / volume.name)
        try:
            remove_tree(volume)
        except (CleanupError, OSError) as error:
            log.warning("removing volume %s: %s", volume, error)


def orphans(pods_dir: Path, known: set[str]) -> list[str]:
    """List the UIDs that have a folder but are not known."""
    if not pods_dir.is_dir():
        return []
    return [entry.name for entry in os.scandir(pods_dir) if entry.name not in known]
