"""Refuses a ReadWriteOncePod volume to a second pod of the node: one that was placed without the scheduler.

The pods that have a volume are read from the data files, so an agent that starts again knows them before it has set their
volumes up (operation_generator.go: IsVolumeMountedElsewhere).
"""

from __future__ import annotations

from agent.csi.layout import DamagedVolumeDataError, Layout
from agent.volumes.csi_volume import Volume
from agent.volumes.payload import VolumeError


def check(layout: Layout, uid: str, volume: Volume) -> None:
    """Refuse a volume that was begun for a pod of another UID. Blocks. Raise VolumeError."""
    if not volume.one_pod:
        return
    try:
        pods = {p.uid for p in layout.all_published() if (p.driver, p.handle) == (volume.driver, volume.handle)}
    except (OSError, DamagedVolumeDataError) as error:
        raise VolumeError(f"the pods with the volume are unknown: {error}") from error
    if pods - {uid}:
        raise VolumeError("volume uses the ReadWriteOncePod access mode and is already in use by another pod")
