"""Local-path volumes: directories on this node that the control plane's local-path provisioner gives to claims.

A volume's directory is created when the first pod mounts it and removed when the provisioner requests that, which is when its
claim is gone. The node decides where they are: directly inside `folder`, which an annotation of the node reports, and only
under names that the provisioner gives. The path in a PersistentVolume comes from the annotation of the node that it was
provisioned for, so a provisioned volume with any other path is refused: a compromised node could name another node's files.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path

from agent.symlinks import resolve
from agent.volumes.cleanup import remove_tree
from agent.volumes.payload import VolumeError
from agent.volumes.subpath import open_below
from kube.api import core_v1
from kube.volume_binding import LOCAL_PATH_PROVISIONER, PROVISIONED_BY

_NAME = re.compile(r"pvc-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class LocalPathVolumes:
    """Folders of volumes below `folder`, which may itself be a link of the administrator's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def includes(self, persistent: core_v1.PersistentVolume) -> bool:
        """Return whether a volume was provisioned as a folder of these, or names one. Raise VolumeError for another path."""
        path = Path(persistent.spec.local.path if persistent.spec.local else "")
        if path.parent == self.folder and _NAME.fullmatch(path.name) is not None:
            return True
        if persistent.metadata.annotations.get(PROVISIONED_BY) == LOCAL_PATH_PROVISIONER:
            raise VolumeError(f'path "{path}" is not a local-path volume of this node: those are in {self.folder}')
        return False

    def open(self, name: str) -> int:
        """Return a descriptor (O_PATH) of a volume's folder, which is created if it is missing.

        No link below `folder` is followed. Blocks. Raise OSError, VolumeError.
        """
        # Any user may enter: pods may run as any user, and only they can reach the directory above.
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o711)
        root, created = resolve(self.folder), False
        with contextlib.suppress(FileExistsError):
            os.mkdir(root / name)
            created = True
        descriptor = open_below(root, (name,))
        try:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise VolumeError(f'path "{root / name}" must be a directory')
            if created:
                Path(f"/proc/self/fd/{descriptor}").chmod(0o777)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def remove(self, name: str) -> None:
        """Remove a volume's folder with what is in it; none is fine. Raise ValueError for other names. Blocks."""
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is not the name of a local-path volume")
        remove_tree(resolve(self.folder) / name)
