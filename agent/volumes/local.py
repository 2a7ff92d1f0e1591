"""Local volumes: a directory, a device as a file system, or a raw device of this node (pkg/volume/local)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from agent import threads
from agent.volumes import formatting, mounts, ownership
from agent.volumes.claims import BoundClaim
from agent.volumes.expansion import Expanded, Expansion
from agent.volumes.local_path import LocalPathVolumes
from agent.volumes.mounted_volume import MountedVolume
from agent.volumes.payload import VolumeError
from kube.api import core_v1

_PLUGIN = "kubernetes.io~local-volume"


class LocalVolumes:
    """Brings PersistentVolumes with a local source to pods below `pods_dir`."""

    def __init__(self, pods_dir: Path, provisioned: LocalPathVolumes, expansion: Expansion | None = None) -> None:
        self._pods_dir, self._provisioned, self._expansion = pods_dir, provisioned, expansion
        self._given: dict[str, set[str]] = {}
        """By pod UID: volumes whose ownership is set. Threads add to it while pods are forgotten."""

    async def set_up(self, pod: core_v1.Pod, bound: BoundClaim, *, read_only: bool) -> MountedVolume:
        """Return the folder or device of a volume, which is expanded if necessary. Raise VolumeError."""
        mounted = await self._mounted(pod, bound.persistent, read_only=read_only)
        if self._expansion is not None:
            source, name = bound.persistent.spec.local, bound.persistent.metadata.name or ""
            assert source is not None, name
            device, owner = Path(source.path), threads.Owner.of(pod)

            async def expand(size: int) -> None:
                # Upstream's localVolumePlugin.NodeExpand: only a file system on a device has something to grow.
                kind = await threads.call(pod.metadata.uid or "", self._kind, device, owner=owner)
                if stat.S_ISBLK(kind) and not mounted.device:
                    await formatting.grow(str(device), mounted.path)

            about = Expanded(name, f"kubernetes.io/local-volume/{name}", mounted.device, read_only)
            await self._expansion.finish(expand, pod, about, bound)
        return mounted

    async def _mounted(
        self, pod: core_v1.Pod, persistent: core_v1.PersistentVolume, *, read_only: bool
    ) -> MountedVolume:
        source, spec = persistent.spec.local, persistent.spec
        assert source is not None, persistent.metadata.name
        path, uid, name = Path(source.path), pod.metadata.uid or "", persistent.metadata.name or ""
        owner = threads.Owner.of(pod)
        provisioned = self._provisioned.includes(persistent)
        if provisioned and spec.volume_mode != "Block":
            path = await threads.call(uid, self._bind, uid, name, path.name, owner=owner)
            kind = stat.S_IFDIR
        else:
            kind = await threads.call(uid, self._kind, path, owner=owner)
        if spec.volume_mode == "Block":
            if not stat.S_ISBLK(kind):
                raise VolumeError(f'path "{path}" is not a block device', step="MapVolume.SetUpDevice")
            return MountedVolume(
                await threads.call(uid, self._link, uid, name, path, owner=owner), read_only, device=True
            )
        if stat.S_ISBLK(kind):
            target = self._target(uid, name)
            await formatting.mount(
                str(path), target, source.fs_type or "", spec.mount_options, read_only=read_only, owner=owner
            )
            path = target
        elif not stat.S_ISDIR(kind):
            raise VolumeError(f'path "{path}" must be a directory or a block device')
        if not read_only:
            await threads.call(uid, self._give, pod, name, path, owner=owner)
        return MountedVolume(path, read_only)

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._given.pop(uid, None)

    def _kind(self, path: Path) -> int:
        """Return the mode of what is at a path. Raise VolumeError."""
        try:
            return os.stat(path).st_mode
        except FileNotFoundError:
            raise VolumeError(f'path "{path}" does not exist') from None
        except OSError as error:
            raise VolumeError(f"{error.strerror}: {path}") from error

    def _bind(self, uid: str, name: str, folder: str) -> Path:
        """Bind a provisioned folder where the pod's volumes are, by its descriptor; return that path. Raise VolumeError.

        The runtime is given the bind mount, so that a link that takes the folder's place later is not followed.
        """
        target = self._target(uid, name)
        if mounts.has_mount(target):
            return target
        try:
            descriptor = self._provisioned.open(folder)
            try:
                target.mkdir(parents=True, exist_ok=True, mode=0o750)
                mounts.bind_descriptor(descriptor, target)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise VolumeError(f"{error.strerror}: {error.filename}") from error
        return target

    def _target(self, uid: str, name: str) -> Path:
        return self._pods_dir / uid / "volumes" / _PLUGIN / name

    def _give(self, pod: core_v1.Pod, name: str, path: Path) -> None:
        """Give the files to the pod's group, once in this agent's life."""
        security, uid = pod.spec.security_context, pod.metadata.uid or ""
        if security is None or security.fs_group is None or name in self._given.get(uid, ()):
            return
        once = security.fs_group_change_policy == "OnRootMismatch"
        try:
            ownership.set_ownership(path, security.fs_group, only_if_root_differs=once)
        except OSError as error:
            raise VolumeError(f"{error.strerror}: {error.filename}") from error
        self._given.setdefault(uid, set()).add(name)

    def _link(self, uid: str, name: str, device: Path) -> Path:
        """Link a device where pods' devices are, so that it is known what a pod has."""
        link = self._pods_dir / uid / "volumeDevices" / _PLUGIN / name
        link.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        link.unlink(missing_ok=True)
        link.symlink_to(device)
        return link
