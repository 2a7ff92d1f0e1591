"""subPath: binds one file or directory of a volume so that no container can swap it for a link (CVE-2021-25741).

A container that writes to the volume can replace any part of the path by a link at any time. So the path is first resolved,
must lie inside the volume, and is then opened part by part from the volume's root with O_NOFOLLOW; the target of the last
descriptor is bound, whatever happens to the path meanwhile. The runtime is given our bind mount, never the path in the volume.
Mounts below the path are not included (pkg/volume/util/subpath/subpath_linux.go).
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from agent import null_bytes
from agent.podspec.environment import ContainerConfigError, expand, names_in
from agent.symlinks import resolve
from agent.volumes import mounts
from agent.volumes.payload import VolumeError
from kube.api import core_v1

_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def named(mount: core_v1.VolumeMount, env: Mapping[str, str]) -> str:
    """Return a mount's path below its volume, "" for the whole. Raise ContainerConfigError with upstream's message."""
    path = mount.sub_path or ""
    if mount.sub_path_expr:
        missing = sorted({name for name in names_in(mount.sub_path_expr) if not env.get(name)})
        if missing:
            raise ContainerConfigError(f"missing value for {', '.join(missing)}")
        path = expand(mount.sub_path_expr, env)
    if path.startswith("/"):
        raise ContainerConfigError(f"error SubPath `{path}` must not be an absolute path")
    if ".." in path.split("/"):
        raise ContainerConfigError(f"unable to provision SubPath `{path}`: must not contain '..'")
    return path


@null_bytes.as_os_error()
def bind(volume: Path, sub_path: str, target: Path, table: mounts.MountTable) -> Path:
    """Bind volume/sub_path onto the target (made as a file or folder) and return it. Raise VolumeError, OSError.

    `table` lists the mounts at targets.
    """
    if sub_path.startswith("/") or ".." in sub_path.split("/"):
        raise VolumeError(f"subPath must be a relative path without '..': {sub_path}")
    root = resolve(volume)
    wanted = resolve(root / sub_path)
    if not wanted.is_relative_to(root):
        raise VolumeError(f"subpath {sub_path!r} is not within the volume path")
    if not wanted.exists():
        _make_folders(root, wanted.relative_to(root).parts)
    descriptor = open_below(root, wanted.relative_to(root).parts)
    try:
        if os.readlink(f"/proc/self/fd/{descriptor}") != str(wanted):
            raise VolumeError(f"subpath {sub_path!r} changed while it was opened")
        table.clear(target)
        _prepare_target(target, folder=stat.S_ISDIR(os.fstat(descriptor).st_mode))
        mounts.bind_descriptor(descriptor, target)
    finally:
        os.close(descriptor)
    return target


def open_below(root: Path, parts: tuple[str, ...]) -> int:
    """Open a path below the root without following a link at any part; return the descriptor (O_PATH). Raise VolumeError."""
    descriptor = os.open(root, _FLAGS | os.O_DIRECTORY)
    try:
        for part in parts:
            below = os.open(part, _FLAGS, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
            if stat.S_ISLNK(os.fstat(descriptor).st_mode):
                raise VolumeError(f"path goes through a link at {part!r}")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _make_folders(root: Path, parts: tuple[str, ...]) -> None:
    """Make missing folders below the root, each inside the descriptor of the one above it."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        for part in parts:
            made = False
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o750, dir_fd=descriptor)
                made = True
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
            if made:
                os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _prepare_target(target: Path, *, folder: bool) -> None:
    """Have an empty folder or file at the target."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if folder:
        if target.is_file():
            target.unlink()
        target.mkdir(exist_ok=True)
    else:
        if target.is_dir():
            target.rmdir()
        target.touch()
