"""hostPath volumes: the checks and creations of each type (pkg/volume/hostpath)."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from agent.volumes.payload import VolumeError

_CHECKS: dict[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


def prepare(path: str, kind: str) -> Path:
    """Return the host's path after its type's check. Raise VolumeError with upstream's message."""
    if not path.startswith("/") or ".." in path.split("/"):
        raise VolumeError(f"hostPath must be an absolute path without '..': {path}")
    target = Path(path)
    if not kind:
        return target
    if kind not in _CHECKS:
        raise VolumeError(f"unknown hostPath type: {kind}")
    try:
        if not target.exists():
            if kind == "DirectoryOrCreate":
                for parent in reversed(target.parents):  # mkdir(parents=True) calls itself for each
                    parent.mkdir(exist_ok=True)
                target.mkdir(mode=0o755)
                target.chmod(0o755)
            elif kind == "FileOrCreate":
                os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        mode = target.stat().st_mode
    except FileNotFoundError:
        raise VolumeError(f"hostPath type check failed: {path} is not {_CHECKS[kind][1]}") from None
    except OSError as error:
        raise VolumeError(f"hostPath type check failed: {path}: {error.strerror}") from error
    check, name = _CHECKS[kind]
    if not check(mode):
        raise VolumeError(f"hostPath type check failed: {path} is not {name}")
    return target
