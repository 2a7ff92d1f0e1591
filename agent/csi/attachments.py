"""Waits until a volume is attached to this node, and lists the volumes in use, which must not be detached.

The attach/detach controller creates a VolumeAttachment, and the driver's own controller handles it. The node first reports the
volumes that it is about to use (status.volumesInUse), then waits until its status lists the volume as attached and the
VolumeAttachment agrees. In that order no detach can come between check and use: the controller removes the volume from
status.volumesAttached before it reads volumesInUse. A wait ends, too, when the driver's CSIDriver object no longer requires
attachments.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

from agent.csi import csi_driver
from agent.csi.layout import DamagedVolumeDataError, Layout
from agent.csi.limits import Limits
from agent.volumes.csi_volume import Volume
from agent.volumes.payload import AttachLimitError, VolumeError
from kube.api import core_v1, storage_v1
from kube.client import Client
from kube.clock import Clock
from kube.csi import attachment_name, is_unique_name, unique_name
from kube.errors import StatusError

log = logging.getLogger(__name__)

WAIT_SECONDS = 123.0
"""Timeout of one try: upstream's podAttachAndMountTimeout of 2 minutes 3 seconds."""
_RESOURCE_EXHAUSTED = 8
"""Code of gRPC with which a driver does not attach a volume because of its number."""
_FIRST_PAUSE, _LAST_PAUSE = 0.05, 1.0


class Attachments:
    """Volumes attached to this node; `request_report` has the node's status reported."""

    def __init__(
        self,
        client: Client,
        node: str,
        *,
        request_report: Callable[[], None],
        clock: Clock,
        limits: Limits | None = None,
    ) -> None:
        self._limits = limits
        self._client, self._node, self._request_report, self._clock = client, node, request_report, clock
        self._in_use: set[str] = set()

    def in_use(self) -> list[str]:
        """List the volumes in use, as the node's status names them."""
        return sorted(self._in_use)

    def is_in_use(self, name: str) -> bool:
        return name in self._in_use

    async def restore(self, layout: Layout) -> None:
        """Restore the volumes that an earlier agent process had in use, from the data files.

        A volume that no pod has, and that is still staged, may be attached: only its pods' data files would tell.
        """
        try:
            found = await asyncio.to_thread(layout.all_published)
            staged = await asyncio.to_thread(layout.staged)
            published = {(p.driver, p.handle) for p in found}
            self._restore(unique_name(p.driver, p.handle) for p in found if p.attached)
            self._restore(unique_name(s.driver, s.handle) for s in staged if (s.driver, s.handle) not in published)
        except (OSError, DamagedVolumeDataError) as error:
            log.warning("all volumes on the node count as in use until the next sweep: %s", error)
            with contextlib.suppress(OSError):
                staged = await asyncio.to_thread(layout.staged)
                self._restore(unique_name(s.driver, s.handle) for s in staged)
            await self._restore_reported()

    def _restore(self, names: Iterable[str]) -> None:
        self._in_use.update(names)

    async def _restore_reported(self) -> None:
        """Restore the volumes in use from the node's status, where the API server answers: they are not on disk."""
        try:
            node = await self._client.get(core_v1.Node, self._node)
        except StatusError as error:
            log.warning("reading the volumes in use from the node's status: %s", error)
        else:
            self._restore(name for name in node.status.volumes_in_use if is_unique_name(name))

    def release(self, name: str) -> None:
        """A volume is on this node no more: it may be detached."""
        if name in self._in_use:
            self._in_use.discard(name)
            self._request_report()

    async def wait(self, volume: Volume) -> dict[str, str] | None:
        """Wait until a volume is attached; return what attaching gave for the driver, None if it requires no attachment now.

        Raise AttachLimitError if the node has as many volumes as the driver allows, else VolumeError and StatusError.
        """
        name = volume.unique_name
        if name not in self._in_use:
            self._in_use.add(name)
            self._request_report()
        attachment = attachment_name(volume.driver, volume.handle, self._node)
        until = self._clock.monotonic() + WAIT_SECONDS
        pause = _FIRST_PAUSE
        while True:
            problem, found = await self._attached(name, attachment)
            if not problem:
                assert found is not None
                return found.status.attachment_metadata
            about = await csi_driver.read(self._client, volume.driver)
            if not csi_driver.requires_attachment(csi_driver.spec_of(about)):
                return None
            if self._clock.monotonic() >= until:
                if await self._limit_reached(volume.driver, attachment):
                    raise AttachLimitError(volume.driver)
                raise VolumeError(f"timed out waiting for external-attacher of {volume.driver} CSI driver: {problem}")
            await self._clock.sleep(pause)
            pause = min(pause * 1.5, _LAST_PAUSE)

    async def metadata(self, volume: Volume) -> dict[str, str]:
        """Return what attaching a volume gave for the driver. Raise StatusError."""
        name = attachment_name(volume.driver, volume.handle, self._node)
        return (await self._client.get(storage_v1.VolumeAttachment, name)).status.attachment_metadata

    async def _attached(self, name: str, attachment: str) -> tuple[str, storage_v1.VolumeAttachment | None]:
        """Return what is still missing, "" with the VolumeAttachment where nothing is."""
        node = await self._client.get(core_v1.Node, self._node)
        if name not in node.status.volumes_in_use:
            return "volume has not been added to the list of VolumesInUse in the node's volume status", None
        if name not in {volume.name for volume in node.status.volumes_attached}:
            return "volume not attached according to node status", None
        try:
            found = await self._client.get(storage_v1.VolumeAttachment, attachment)
        except StatusError as error:
            # A node may not read what is not there for it.
            if error.not_found or error.code == 403:
                return f"volume attachment {attachment} does not exist", None
            raise
        if found.metadata.deletion_timestamp is not None:
            return "volume attachment is being deleted", None
        if found.status.attached:
            return "", found
        return found.status.attach_error.message or "" if found.status.attach_error else "not attached yet", found

    async def _limit_reached(self, driver: str, attachment: str) -> bool:
        """Return whether a driver attached no volume because of its number, and that number is kept up to date."""
        try:
            problem = (await self._client.get(storage_v1.VolumeAttachment, attachment)).status.attach_error
        except StatusError:
            return False
        exhausted = problem is not None and problem.error_code == _RESOURCE_EXHAUSTED
        return exhausted and self._limits is not None and await self._limits.corrected(driver)
