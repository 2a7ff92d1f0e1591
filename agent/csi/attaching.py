"""The first step of a volume's setup: it is attached to the node, unless its driver requires no attachment.

A CSIDriver object may change while pods wait or run. A volume that a pod has with an attachment stays in use until it is
unstaged, whatever the object says by then; one that no pod has so is released, so that its attachment can be deleted
(desired_state_of_world_populator.go: MarkVolumeAttachability).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from agent.csi import csi_driver
from agent.csi.attachments import Attachments
from agent.csi.layout import DamagedVolumeDataError
from agent.csi.unstaging import Unstaging
from agent.volumes.csi_volume import Volume
from agent.volumes.payload import VolumeError
from kube.api import storage_v1
from kube.client import Client

log = logging.getLogger(__name__)


class Attaching:
    """Waits for attachments; callers hold the volume's lock."""

    def __init__(self, client: Client, attachments: Attachments, unstaging: Unstaging) -> None:
        self._client, self._attachments, self._unstaging = client, attachments, unstaging

    async def attach(
        self, volume: Volume, spec: storage_v1.CSIDriverSpec
    ) -> tuple[Mapping[str, str], storage_v1.CSIDriverSpec]:
        """Wait until a volume is attached; return what attaching gave for the driver, and the driver's spec by then.

        Raise AttachLimitError, VolumeError and StatusError.
        """
        while csi_driver.requires_attachment(spec):
            try:
                published = await self._attachments.wait(volume)
            except VolumeError as error:
                step = "MapVolume.WaitForAttach" if volume.block else "MountVolume.WaitForAttach"
                raise VolumeError(str(error), step=step) from error
            spec = csi_driver.spec_of(await csi_driver.read(self._client, volume.driver))
            if published is not None and csi_driver.requires_attachment(spec):
                return published, spec
        if self._attachments.is_in_use(volume.unique_name) and not await self._is_attached(volume):
            self._attachments.release(volume.unique_name)
        return {}, spec

    async def _is_attached(self, volume: Volume) -> bool:
        try:
            return await asyncio.to_thread(self._unstaging.attached, volume.driver, volume.handle)
        except (OSError, DamagedVolumeDataError) as error:
            log.warning("volume %s counts as in use until it is unstaged: %s", volume.handle, error)
            return True
