"""The folders of an installation with their modes, and what accounts other than root may read below them.

Everything else that Wherry writes is for root alone, and for the control plane's account where systemd runs it.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wherry.layout import Layout
from wherry.settings import Settings


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder and the most that its mode may allow."""

    path: Path
    mode: int


def folders(settings: Settings) -> Iterator[Folder]:
    """Yield the folders of an installation, those above before those below."""
    layout = settings.layout
    yield Folder(layout.etc, 0o755)
    yield Folder(layout.etc / "manifests", 0o700)
    yield Folder(layout.kubelet_drop_ins, 0o700)
    # Processes of pods with users of their own pass through these two to their root file system, as do the control
    # plane's account to its keys; neither lists them.
    yield Folder(layout.state, 0o711)
    yield Folder(layout.run, 0o711)
    yield Folder(layout.pki, 0o700)
    if not settings.is_worker:
        yield Folder(layout.state / "control", 0o700)
        yield Folder(layout.addons, 0o750)
        yield Folder(layout.snapshots, 0o700)
    yield Folder(layout.logs, 0o750)
    yield Folder(layout.kubelet, 0o750)
    yield Folder(layout.kubelet / "pki", 0o700)
    yield Folder(layout.pod_logs, 0o750)
    yield Folder(layout.container_logs, 0o755)
    yield Folder(layout.cni_configuration, 0o755)
    yield Folder(layout.cni_state / "wherry", 0o700)


def make_folders(settings: Settings) -> None:
    """Make the folders that are missing, and take from the modes of those that are there what goes beyond."""
    for folder in folders(settings):
        if not folder.path.is_dir():
            folder.path.mkdir(parents=True, exist_ok=True, mode=folder.mode)
            folder.path.chmod(folder.mode)  # whatever the umask
        mode = folder.path.stat().st_mode & 0o7777
        if mode & ~folder.mode:
            folder.path.chmod(mode & folder.mode)


WORLD_READABLE = {
    "var/lib/wherry/containerd/*": "images' own files with their own modes, behind folders that containerd closes",
    "run/wherry/containerd/*": "the root file systems of containers, as their images have them",
}
"""Patterns of paths below the prefix -> why accounts other than root may read them."""


def world_readable(layout: Layout, paths: Iterator[Path]) -> list[Path]:
    """Return the files that everybody can read without a reason: by their own bits and those of all folders above."""
    found = []
    for path in paths:
        below = str(path.relative_to(layout.prefix))
        if any(fnmatch.fnmatch(below, pattern) for pattern in WORLD_READABLE):
            continue
        above = [each for each in path.parents if each.is_relative_to(layout.prefix) and each != layout.prefix]
        if path.lstat().st_mode & 0o004 and all(each.stat().st_mode & 0o001 for each in above):
            found.append(path)
    return found
