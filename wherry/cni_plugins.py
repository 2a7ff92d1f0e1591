"""Where the CNI plugins of the machine are."""

from __future__ import annotations

from pathlib import Path

from wherry.errors import WherryError

FOLDERS = ("/usr/lib/cni", "/opt/cni/bin")


def folder() -> str:
    """Return the folder of the CNI plugins; WherryError where there is none."""
    for found in FOLDERS:
        if Path(found, "bridge").exists():
            return found
    raise WherryError(f"no CNI plugins in {' or '.join(FOLDERS)}: apt-get install containernetworking-plugins")
