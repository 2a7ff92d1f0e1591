"""Sets the ownership of a volume's files to a pod's fsGroup (pkg/volume/volume_linux.go).

Every file and directory gets the group, with the owner's permissions, and directories pass the group on. Symbolic
links are changed, never followed: the walk uses directory descriptors (files/walk.py), and enters no mounts. A file that
cannot be changed, an immutable one for example, does not stop the others.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from agent.files.walk import entries_below

log = logging.getLogger(__name__)

_READ_WRITE, _READ = 0o660, 0o440
_FOLDER = 0o110 | stat.S_ISGID


def set_ownership(folder: Path, group: int, *, read_only: bool = False, only_if_root_differs: bool = False) -> None:
    """Set the group of a folder and everything below it. Blocks. Raise OSError."""
    bits = _READ if read_only else _READ_WRITE
    if only_if_root_differs and _has(folder, group, bits | _FOLDER):
        return
    changes = _Changes(group, bits)
    # The directory itself comes last: its state shows whether the walk was finished (fsGroupChangePolicy: OnRootMismatch).
    with contextlib.suppress(NotADirectoryError):  # a link: only it is changed
        for descriptor, name, _ in entries_below(folder):
            changes.make(name, descriptor)
    changes.make(str(folder), None)
    if changes.failed:
        log.warning("fsGroup %d of %s: %d changes failed; the first: %s", group, folder, changes.failed, changes.error)


def _has(folder: Path, group: int, bits: int) -> bool:
    found = folder.stat()
    return found.st_gid == group and found.st_mode & bits == bits


class _Changes:
    """The changes of each file; `failed` counts those that the kernel refused, `error` is the first of these."""

    def __init__(self, group: int, bits: int) -> None:
        self._group, self._bits = group, bits
        self.failed = 0
        self.error: OSError | None = None

    def make(self, name: str, folder: int | None) -> None:
        """Change one file. Raise OSError if it cannot be opened."""
        # By descriptor: no link, or file of another mode, can replace it between check and change.
        try:
            opened = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            return  # another pod of the volume removed it
        try:
            found, path = os.fstat(opened), f"/proc/self/fd/{opened}"
            with self._counted():
                os.chown(path, -1, self._group)  # of a link itself, which the descriptor stands for
            if not stat.S_ISLNK(found.st_mode):
                bits = self._bits | (_FOLDER if stat.S_ISDIR(found.st_mode) else 0)
                with self._counted():
                    os.chmod(path, stat.S_IMODE(found.st_mode) | bits)
        finally:
            os.close(opened)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failed, self.error = self.failed + 1, self.error or error
