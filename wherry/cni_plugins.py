"""Finds the CNI plugins of the machine."""

from __future__ import annotations

from pathlib import Path

from wherry.errors import WherryError

FOLDERS = ("/usr/lib/cni", "/opt/cni/bin")


def find() -> str | None:
    """Return the folder of the CNI plugins; None if there is none."""
    return next((folder for folder in FOLDERS if Path(folder, "bridge").exists()), None)


def folder() -> str:
    """Return the folder of the CNI plugins; WherryError where there is none."""
    if found := find():
        return found
    raise WherryError(f"no CNI plugins in {' or '.join(FOLDERS)}: apt-get install containernetworking-plugins")
