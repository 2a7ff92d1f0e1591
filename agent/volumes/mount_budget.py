"""Limits of the volumes and mounts of a pod, and of the mounts of a namespace's pods together on this node.

The kernel limits the mounts of the node (fs.mount-max, 100 000), and whoever reads its list of mounts reads them all. A pod may
have thousands of subPath mounts in an object of a megabyte, so a few pods would leave no volume of anybody else mountable. Only
mounts that the agent creates count: in-memory volumes, NFS, CSI and persistent volumes, and subPaths of all containers. Those
that a container has itself are in its own mount namespace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from kube.api import core_v1

MOST = 1024
"""Mounts of a pod."""
MOST_VOLUMES = 4096
"""Volumes of a pod that its containers use, also those that are no mounts: the agent measures each of them periodically."""
PART = 4
"""One part of so many of the kernel's limit is for a namespace."""
_KERNEL, _KERNELS_DEFAULT = Path("/proc/sys/fs/mount-max"), 100_000


def kernel_limit() -> int:
    """Return the kernel's limit of mounts, its default if it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return int(_KERNEL.read_text())
    return _KERNELS_DEFAULT


def of_volumes(pod: core_v1.Pod) -> list[str]:
    """Return the names of the volumes that are mounts, in the pod's order."""
    return [volume.name for volume in pod.spec.volumes if _is_mount(volume)]


def of_sub_paths(pod: core_v1.Pod) -> int:
    """Return the number of subPath mounts of all containers; the runtime mounts those of images."""
    images = {volume.name for volume in pod.spec.volumes if volume.image is not None}
    containers = [container.volume_mounts for container in (*pod.spec.init_containers, *pod.spec.containers)]
    ephemeral = [container.volume_mounts for container in pod.spec.ephemeral_containers]
    return sum(
        bool(mount.sub_path or mount.sub_path_expr) and mount.name not in images
        for mounts in (*containers, *ephemeral)
        for mount in mounts
    )


def _is_mount(volume: core_v1.Volume) -> bool:
    if volume.empty_dir is not None:
        return bool(volume.empty_dir.medium)
    return not any(source is not None for source in (volume.config_map, volume.host_path, volume.image))


def too_many(volumes: int) -> str:
    """Return why a pod cannot have so many volumes, "" if it can."""
    return f"the pod has {volumes} volumes, {MOST_VOLUMES} are allowed" if volumes > MOST_VOLUMES else ""


class MountBudget:
    """The mounts of pods on the node, each pod's from the first use to `forget`."""

    def __init__(self, limit: Callable[[], int] = kernel_limit) -> None:
        self._limit = limit
        self._pods: dict[str, tuple[str, int]] = {}
        """By pod's UID: its namespace and mounts."""
        self._namespaces: dict[str, int] = {}

    def take(self, pod: core_v1.Pod, mounts: int) -> str:
        """Count so many mounts in all for a pod, if they are more than before; return why they are too many, or ""."""
        uid, namespace = pod.metadata.uid or "", pod.metadata.namespace or ""
        if mounts > MOST:
            return f"the pod has {mounts} mounts of volumes and subPaths, {MOST} are allowed"
        before = self._pods.get(uid, (namespace, 0))[1]
        if mounts <= before:
            return ""
        total, most = self._namespaces.get(namespace, 0) + mounts - before, self._limit() // PART
        if total > most:
            return (
                f"with the {mounts} mounts of volumes and subPaths of this pod, the pods of namespace {namespace} have "
                f"{total} on this node, {most} are allowed"
            )
        self._pods[uid], self._namespaces[namespace] = (namespace, mounts), total
        return ""

    def forget(self, uid: str) -> None:
        """Count nothing for a pod that is gone."""
        namespace, mounts = self._pods.pop(uid, ("", 0))
        if mounts:
            self._namespaces[namespace] -= mounts
            if not self._namespaces[namespace]:
                del self._namespaces[namespace]
