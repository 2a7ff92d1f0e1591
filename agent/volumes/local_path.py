"""Local-path volumes: directories on this node that the control plane's local-path provisioner gives to claims.

A volume's directory is created when the first pod mounts it and removed when the provisioner requests that, which is when its
claim is gone. An annotation of the node names the directory of such volumes; only there are directories created and removed,
and only under names that the provisioner gives.
"""

from __future__ import annotations

import re
from pathlib import Path

from agent.volumes.cleanup import remove_tree

_NAME = re.compile(r"pvc-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class LocalPathVolumes:
    """Folders of volumes below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self, path: Path) -> None:
        """Make a volume's folder if it is to be one of ours and is missing. Blocks."""
        if path.parent != self.folder or _NAME.fullmatch(path.name) is None or path.exists():
            return
        # Any user may enter: pods may run as any user, and only they can reach the directory above.
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o711)
        path.mkdir(exist_ok=True)
        path.chmod(0o777)

    def remove(self, name: str) -> None:
        """Remove a volume's folder with what is in it; none is fine. Raise ValueError for other names. Blocks."""
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is not the name of a local-path volume")
        remove_tree(self.folder / name)
