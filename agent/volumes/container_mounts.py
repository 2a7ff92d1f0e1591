"""Builds the mounts and block devices of a container from its pod's volumes, in the runtime's terms."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from agent.podspec.environment import ContainerConfigError
from agent.podspec.security import AnyContainer
from agent.volumes import cleanup, subpath
from agent.volumes.mounted_volume import MountedVolume
from agent.volumes.mounts import MountTable
from agent.volumes.payload import VolumeError
from cri.messages import Device, ImageSpec, Mount, MountPropagation
from kube.api import core_v1

log = logging.getLogger(__name__)

_PROPAGATION = {
    "HostToContainer": MountPropagation.PROPAGATION_HOST_TO_CONTAINER,
    "Bidirectional": MountPropagation.PROPAGATION_BIDIRECTIONAL,
}


class ContainerMounts:
    """Builds the mounts of one container."""

    def __init__(self, pod_dir: Path, container: AnyContainer, *, recursive_read_only: bool) -> None:
        self._container, self._recursive = container, recursive_read_only
        self._sub_paths = pod_dir / cleanup.SUB_PATHS
        self._table = MountTable(self._sub_paths)

    def mounts(self, mounted: Mapping[str, MountedVolume], env: Mapping[str, str]) -> list[Mount]:
        """Return the container's volume mounts, subPaths bound. Raise ContainerConfigError."""
        return [self._mount(index, mount, mounted, env) for index, mount in enumerate(self._container.volume_mounts)]

    def _mount(
        self, index: int, mount: core_v1.VolumeMount, mounted: Mapping[str, MountedVolume], env: Mapping[str, str]
    ) -> Mount:
        volume = mounted.get(mount.name)
        if volume is None:
            raise ContainerConfigError(
                f'cannot find volume "{mount.name}" to mount into container "{self._container.name}"'
            )
        container_path = mount.mount_path if mount.mount_path.startswith("/") else f"/{mount.mount_path}"
        sub_path = subpath.named(mount, env)
        if volume.image is not None:
            image = ImageSpec(image=volume.image_id, user_specified_image=volume.image.reference or "")
            return Mount(container_path=container_path, readonly=True, image=image, image_sub_path=sub_path)
        read_only = bool(mount.read_only) or volume.read_only
        return Mount(
            container_path=container_path,
            host_path=str(self._bind(index, mount, volume.path, sub_path) if sub_path else volume.path),
            readonly=read_only,
            propagation=_PROPAGATION.get(mount.mount_propagation or "", MountPropagation.PROPAGATION_PRIVATE),
            recursive_read_only=recursive_read_only(mount, read_only=read_only, supported=self._recursive),
        )

    def _bind(self, index: int, mount: core_v1.VolumeMount, volume: Path, sub_path: str) -> Path:
        target = self._sub_paths / mount.name / self._container.name / str(index)
        try:
            return subpath.bind(volume, sub_path, target, self._table)
        except (VolumeError, OSError) as error:
            which = f'subPath for volumeMount "{mount.name}" of container "{self._container.name}"'
            log.warning("%s: %s: %s", target, which, error)
            raise ContainerConfigError(f"failed to prepare {which}") from error


def container_devices(container: AnyContainer, mounted: Mapping[str, MountedVolume]) -> list[Device]:
    """Return the block volumes that the container gets as devices. Raise ContainerConfigError."""
    result = []
    for device in container.volume_devices:
        volume = mounted.get(device.name)
        if volume is None or not volume.device:
            raise ContainerConfigError(f'cannot find volume "{device.name}" to pass into container "{container.name}"')
        permissions = "r" if volume.read_only else "mrw"
        result.append(Device(container_path=device.device_path, host_path=str(volume.path), permissions=permissions))
    return result


def recursive_read_only(mount: core_v1.VolumeMount, *, read_only: bool, supported: bool) -> bool:
    """Return whether mounts below are to be read-only too (KEP-3857); IfPossible depends on the runtime.

    Raise ContainerConfigError.
    """
    wanted = mount.recursive_read_only
    if wanted in (None, "Disabled") or not read_only:
        return False
    if supported:
        return True
    if wanted == "IfPossible":
        return False
    raise ContainerConfigError(
        f'volume "{mount.name}" requested recursive read-only mode, but it is not supported by the runtime'
    )
