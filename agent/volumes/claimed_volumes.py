"""One call that sets up a pod's volumes: each claim is read once, and each local volume is set up once.

A pod may name a claim in a thousand volumes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from agent.volumes.claims import BoundClaim, claim_of
from agent.volumes.mounted_volume import MountedVolume
from agent.volumes.payload import VolumeError
from kube.api import core_v1

T = TypeVar("T")

INTERVAL_SECONDS = 60.0
"""Interval at which a volume in use is checked for an expansion, as those of drivers."""
CHECKS_A_SECOND = 10.0
"""Claims that a node reads again each second at most: the interval is longer with many claims."""


def interval(claims: int) -> float:
    """Return the seconds between checks of a volume, next to so many claims of the node's pods that are read again."""
    return max(INTERVAL_SECONDS, claims / CHECKS_A_SECOND)


class Reader(Protocol):
    """Reads the claim of a pod's volume."""

    async def read(self, pod: core_v1.Pod, volume: core_v1.Volume) -> BoundClaim:
        """Raise VolumeError."""
        ...


@dataclass(slots=True)
class VolumeSetUp:
    """One call of VolumeManager.mount: claims read and local volumes set up in it, and how containers use them."""

    pod: core_v1.Pod
    local: dict[tuple[str, bool], MountedVolume | VolumeError] = field(default_factory=dict)
    """Local volumes by the name of their PersistentVolume, and whether they are read-only."""
    _claims: dict[tuple[str, bool], BoundClaim | VolumeError] = field(default_factory=dict)
    """By name, and whether it was made for the pod."""
    _uses: Mapping[str, frozenset[str]] | None = None

    async def read(self, reader: Reader, volume: core_v1.Volume) -> BoundClaim:
        """Return a volume's claim as it was read first. Raise VolumeError."""
        reference = claim_of(self.pod, volume)
        assert reference is not None, volume.name
        key = reference[1], volume.ephemeral is not None
        if key not in self._claims:
            try:
                self._claims[key] = await reader.read(self.pod, volume)
            except VolumeError as error:
                self._claims[key] = error
        return raised(self._claims[key])

    def check_mode(self, volume: core_v1.Volume, persistent: core_v1.PersistentVolume) -> None:
        """Refuse a device that is to be mounted and a file system that is to be a device. Raise VolumeError."""
        uses = self._uses = self._uses or _uses(self.pod)
        if persistent.spec.volume_mode == "Block":
            if volume.name in uses["mounts"]:
                raise VolumeError(f"volume {volume.name} has volumeMode Block, but is specified in volumeMounts")
        elif volume.name in uses["devices"]:
            raise VolumeError(f"volume {volume.name} has volumeMode Filesystem, but is specified in volumeDevices")


def raised(found: T | VolumeError) -> T:
    """Return what was found; raise a copy of an error that was."""
    if isinstance(found, VolumeError):
        raise VolumeError(str(found), step=found.step, name=found.name)
    return found


def _uses(pod: core_v1.Pod) -> Mapping[str, frozenset[str]]:
    spec = pod.spec
    containers: tuple[core_v1.Container | core_v1.EphemeralContainer, ...] = (
        *spec.init_containers,
        *spec.containers,
        *spec.ephemeral_containers,
    )
    return {
        "mounts": frozenset(mount.name for container in containers for mount in container.volume_mounts),
        "devices": frozenset(device.name for container in containers for device in container.volume_devices),
    }
