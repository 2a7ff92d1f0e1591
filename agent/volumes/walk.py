"""Walking a folder that pods write, at any depth: by directory descriptors, never through a link, never into a mount.

One descriptor is open at a time and nothing recurses: a pod can nest folders deeper than Python's stack or the limit on open
files. The way up is "..", and is taken only into the folder that the walk came from.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def entries_below(folder: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield each entry below a folder after what is in it: descriptor of its folder, name, whether it is a folder.

    What is mounted below is left out with its mount point. Raise OSError.
    """
    descriptor = os.open(folder, _FLAGS)
    try:
        mount = _mount_of(descriptor)
        levels = [("", _identity(descriptor), _listed(descriptor))]
        while True:
            name, _, left = levels[-1]
            if not left:
                levels.pop()
                if not levels:
                    return
                above = os.open("..", _FLAGS, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = above
                if _identity(descriptor) != levels[-1][1]:
                    raise OSError(errno.ESTALE, "folder was moved during the walk", name)
                yield descriptor, name, True
                continue
            name, is_folder = left.pop()
            if not is_folder:
                yield descriptor, name, False
                continue
            try:
                below = os.open(name, _FLAGS, dir_fd=descriptor)
            except FileNotFoundError:
                continue  # removed meanwhile
            except NotADirectoryError:
                yield descriptor, name, False  # a link or file took its place
                continue
            if _mount_of(below) != mount:
                os.close(below)
                continue
            os.close(descriptor)
            descriptor = below
            levels.append((name, _identity(descriptor), _listed(descriptor)))
    finally:
        os.close(descriptor)


def remove(folder: Path) -> None:
    """Delete a folder and what is in it, as far as that can be done, never what a link names or what is mounted.

    Raise the first OSError where something stays.
    """
    failed: OSError | None = None
    for descriptor, name, is_folder in entries_below(folder):
        try:
            (os.rmdir if is_folder else os.unlink)(name, dir_fd=descriptor)
        except FileNotFoundError:
            pass
        except OSError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    os.rmdir(folder)


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _listed(descriptor: int) -> list[tuple[str, bool]]:
    with os.scandir(descriptor) as found:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]


def _mount_of(descriptor: int) -> str:
    """Return the ID of the mount that a descriptor is in: a device's number would not tell of bind mounts."""
    with open(f"/proc/self/fdinfo/{descriptor}") as lines:
        return next(line for line in lines if line.startswith("mnt_id:"))
