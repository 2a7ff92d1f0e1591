"""CSI volumes as PersistentVolumes and pods' own volumes name them, and the interface to their drivers.

`agent/csi` implements the interface. It uses this package (claims, tokens, ownership), so this package does not import it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from agent.keyed_tasks import Begin
from agent.threads import Owner
from agent.usage.model import Filesystem
from agent.volumes.claims import BoundClaim
from kube.api import core_v1
from kube.csi import unique_name

PLUGIN = "kubernetes.io~csi"
"""Directory of CSI volumes in a pod's directory."""
_ONE_NODE = frozenset(("ReadWriteOnce", "ReadWriteOncePod"))


@dataclass(frozen=True, slots=True)
class Volume:
    """One volume of one pod, with a driver and the name by which the driver knows it."""

    name: str
    """The PersistentVolume's name, or that of the pod's volume where it is ephemeral."""
    driver: str
    handle: str
    pod_volume: str
    """Its name in the pod."""
    ephemeral: bool = False
    block: bool = False
    read_only: bool = False
    fs_type: str = ""
    mount_options: tuple[str, ...] = ()
    access_mode: str = "ReadWriteOnce"
    """The first of its access modes, which the driver gets."""
    for_one_node: bool = True
    """True if one of its access modes is ReadWriteOnce or ReadWriteOncePod."""
    one_pod: bool = False
    """True if ReadWriteOncePod is its only access mode."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    stage_secret: tuple[str, str] | None = None
    publish_secret: tuple[str, str] | None = None
    expand_secret: tuple[str, str] | None = None

    @property
    def unique_name(self) -> str:
        """The name under which node statuses list it."""
        return unique_name(self.driver, self.handle)


@dataclass(frozen=True, slots=True)
class Ready:
    """A volume that is set up: the directory or the link to the device, and when to set it up again (epoch seconds)."""

    path: Path
    again: float | None = None
    required: bool = False
    """True if the driver requires that (requiresRepublish); else it is only to look for an expansion, and may be later."""


class DriverVolumes(Protocol):
    """Volumes that CSI drivers provide to pods."""

    async def set_up(self, pod: core_v1.Pod, volume: Volume, bound: BoundClaim | None = None) -> Ready:
        """Set a volume up, or update it. Raise VolumeError."""
        ...

    async def volume_stats(self, pod: core_v1.Pod, volume: Volume, now: float) -> Filesystem | None:
        """Return the driver's report of a volume's usage; None if it does not support that."""
        ...

    def has_volumes_of(self, uid: str) -> bool:
        """Return whether this agent process began any volume of a pod."""
        ...

    async def release(self, uid: str, owner: Owner | None = None) -> None:
        """Unpublish a pod's volumes, and unstage those that no other pod uses. Raise CleanupError to be retried."""
        ...

    async def sweep(self, begin: Begin | None = None) -> None:
        """Unstage the volumes that no pod uses, with a task for each driver where `begin` is given."""
        ...

    async def close(self) -> None:
        """End the retries."""
        ...


def of_persistent(persistent: core_v1.PersistentVolume, pod_volume: str, *, read_only: bool) -> Volume:
    """Return the volume behind a PersistentVolume with a csi source."""
    source, spec = persistent.spec.csi, persistent.spec
    assert source is not None, persistent.metadata.name
    return Volume(
        name=persistent.metadata.name or "",
        driver=source.driver,
        handle=source.volume_handle,
        pod_volume=pod_volume,
        block=spec.volume_mode == "Block",
        read_only=read_only or bool(source.read_only),
        fs_type=source.fs_type or "",
        mount_options=tuple(spec.mount_options),
        access_mode=spec.access_modes[0] if spec.access_modes else "ReadWriteOnce",
        one_pod=spec.access_modes == ["ReadWriteOncePod"],
        for_one_node=not _ONE_NODE.isdisjoint(spec.access_modes),
        attributes=source.volume_attributes,
        stage_secret=_secret(source.node_stage_secret_ref),
        publish_secret=_secret(source.node_publish_secret_ref),
        expand_secret=_secret(source.node_expand_secret_ref),
    )


def of_pod(pod: core_v1.Pod, volume: core_v1.Volume) -> Volume:
    """Return an ephemeral volume, which the driver makes for this pod alone."""
    source = volume.csi
    assert source is not None, volume.name
    made_of = f"{pod.metadata.uid}{volume.name}".encode()
    secret = source.node_publish_secret_ref
    return Volume(
        name=volume.name,
        driver=source.driver,
        handle=f"csi-{hashlib.sha256(made_of).hexdigest()}",
        pod_volume=volume.name,
        ephemeral=True,
        read_only=bool(source.read_only),
        fs_type=source.fs_type or "",
        attributes=source.volume_attributes,
        publish_secret=(pod.metadata.namespace or "", secret.name or "") if secret is not None else None,
    )


def _secret(reference: core_v1.SecretReference | None) -> tuple[str, str] | None:
    return (reference.namespace or "", reference.name or "") if reference is not None else None
