"""Giving a volume's files to a pod's fsGroup (pkg/volume/volume_linux.go).

Every file and folder gets the group, which may then read and write what the owner may, and folders pass the group on. Links are
changed themselves, never followed: the walk goes by folders' descriptors (walk.py), and into no mount below.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from agent.volumes.walk import entries_below

_READ_WRITE, _READ = 0o660, 0o440
_FOLDER = 0o110 | stat.S_ISGID


def give(folder: Path, group: int, *, read_only: bool = False, only_if_root_differs: bool = False) -> None:
    """Give everything below a folder, and itself, to a group. Blocks. Raise OSError."""
    bits = _READ if read_only else _READ_WRITE
    if only_if_root_differs and _has(folder, group, bits | _FOLDER):
        return
    # The folder itself comes last: its state says whether the walk was finished (fsGroupChangePolicy: OnRootMismatch).
    with contextlib.suppress(NotADirectoryError):  # a link: only it is changed
        for descriptor, name, _ in entries_below(folder):
            _change(name, descriptor, group, bits)
    _change(str(folder), None, group, bits)


def _has(folder: Path, group: int, bits: int) -> bool:
    found = folder.stat()
    return found.st_gid == group and found.st_mode & bits == bits


def _change(name: str, folder: int | None, group: int, bits: int) -> None:
    # By descriptor: between look and change nobody puts a link, or a file of another mode, in the name's place.
    try:
        opened = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return  # another pod of the volume removed it
    try:
        found, path = os.fstat(opened), f"/proc/self/fd/{opened}"
        os.chown(path, -1, group)  # of a link itself, which the descriptor stands for
        if not stat.S_ISLNK(found.st_mode):
            os.chmod(path, stat.S_IMODE(found.st_mode) | bits | (_FOLDER if stat.S_ISDIR(found.st_mode) else 0))
    finally:
        os.close(opened)
