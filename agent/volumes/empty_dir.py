"""emptyDir: a directory of the pod's own on disk, in memory, or of huge pages (pkg/volume/emptydir).

In memory its size is the node's memory for pods, the pod's limit or its own sizeLimit, whichever is least, so that nothing
written there exceeds what the pod may use. Huge pages are of the one size that the pod's containers request, or of the size
that the medium names.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from agent.cgroups import qos
from agent.volumes import mounts
from agent.volumes.payload import VolumeError
from kube.api import core_v1
from kube.quantity import value

_PREFIX = "hugepages-"
_OPEN, _IN_MEMORY = 0o777, 0o1777
"""Modes of the folder: with the sticky bit where the kernel makes a tmpfs with it, as upstream leaves it."""


def make(
    target: Path, source: core_v1.EmptyDirVolumeSource, pod: core_v1.Pod, node_memory: int, table: mounts.MountTable
) -> None:
    """Make the folder where it is missing; `node_memory` is what pods may use, in bytes. Raise VolumeError, OSError.

    `table` lists the mounts in the pod's directory.
    """
    fresh = not target.is_dir()
    medium = source.medium or ""
    group = pod.spec.security_context.fs_group if pod.spec.security_context else None
    if fresh and not medium:
        _make_folder(target, group)
        return
    if fresh:
        target.mkdir(parents=True)
    if medium and (fresh or not table.has(target)):
        fresh = True
        if medium == "Memory":
            mounts.mount_tmpfs(target, size=memory_size(source, pod, node_memory))
        elif medium.startswith("HugePages"):
            mounts.mount_hugetlbfs(target, page_size(medium, pod))
        else:
            raise VolumeError(f'unknown storage medium "{medium}"')
    if fresh:
        _open_to(target, group, _IN_MEMORY if medium == "Memory" else _OPEN)


def _make_folder(target: Path, group: int | None) -> None:
    """Make a folder that has its name when pods may write to it: an agent that is killed leaves none that they may not."""
    unfinished = target.with_name(f".{target.name}.new")
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        unfinished.rmdir()
    unfinished.mkdir()
    _open_to(unfinished, group)
    unfinished.rename(target)


def _open_to(folder: Path, group: int | None, mode: int = _OPEN) -> None:
    folder.chmod(mode)
    if group is not None:
        os.chown(folder, -1, group)
        folder.chmod(mode | stat.S_ISGID)


def memory_size(source: core_v1.EmptyDirVolumeSource, pod: core_v1.Pod, node_memory: int) -> int:
    """Return how large a folder in memory may grow, in bytes; 0 is without limit."""
    sizes = (node_memory, qos.pod_limit(pod, "memory"), value(source.size_limit or 0))
    return min((size for size in sizes if size > 0), default=0)


def page_size(medium: str, pod: core_v1.Pod) -> str:
    """Return the size of the huge pages for a medium, as 2Mi. Raise VolumeError."""
    sizes = {
        name.removeprefix(_PREFIX)
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        for name in qos.requests(container.resources)
        if name.startswith(_PREFIX)
    }
    named = medium.removeprefix("HugePages").removeprefix("-")
    if named:
        same = [size for size in sizes if value(size) == value(named)]
        if not same:
            raise VolumeError(f"medium: {medium}: no container requests huge pages of this size")
        return same[0]
    if len(sizes) > 1:
        raise VolumeError(f"medium: {medium} can't be used if container requests multiple huge page sizes")
    if not sizes:
        raise VolumeError(f"medium: {medium} can't be used if no container requests huge pages")
    return sizes.pop()
