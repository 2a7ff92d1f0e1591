"""Unstages volumes that no pod uses, by the volume data files and the kernel's mounts, and lets them be detached.

A file that cannot be read may name any volume, so no volume counts as unused then. Callers hold the volume's lock.
"""

from __future__ import annotations

import asyncio
import logging

from agent import threads
from agent.csi.attachments import Attachments
from agent.csi.drivers import CSIDrivers
from agent.csi.layout import DamagedVolumeDataError, Layout, Staged
from agent.volumes import mounts
from agent.volumes.cleanup import CleanupError
from cri.errors import CRIError
from kube.csi import split_unique_name, unique_name

log = logging.getLogger(__name__)
DriverAndHandle = tuple[str, str]


class Unstaging:
    """Unstages volumes of the node."""

    def __init__(self, drivers: CSIDrivers, attachments: Attachments, layout: Layout) -> None:
        self._drivers, self._attachments, self._layout = drivers, attachments, layout

    def unused(self) -> set[DriverAndHandle]:
        """Return volumes that are staged or in use, but by no pod. Raise OSError and DamagedVolumeDataError."""
        in_use = {split_unique_name(name) for name in self._attachments.in_use()}
        staged = {(staged.driver, staged.handle) for staged in self._layout.staged()}
        return (in_use | staged) - self._used()

    def attached(self, driver: str, handle: str) -> bool:
        """Return whether a pod may have a volume with an attachment. Raise OSError and DamagedVolumeDataError."""
        pods = [p for p in self._layout.all_published() if (p.driver, p.handle) == (driver, handle)]
        if pods:
            return any(published.attached for published in pods)
        return bool(self._layout.staged_volume(driver, handle))

    def _used(self) -> set[DriverAndHandle]:
        return {(published.driver, published.handle) for published in self._layout.all_published()}

    async def unstage(self, driver: str, handle: str, owner: threads.Owner | None = None) -> None:
        """Take a volume off the node unless a pod uses it, `owner` being the one that leaves. Raise CleanupError."""
        what = f'UnmountDevice failed for volume "{handle}" : kubernetes.io/csi'
        try:
            if (driver, handle) in await asyncio.to_thread(self._used):
                return
            for staged in await asyncio.to_thread(self._layout.staged_volume, driver, handle):
                await self._unstage(staged, owner)
        except DamagedVolumeDataError as error:
            # It may name this volume. The sweep retries this, also when the file's pod is gone.
            log.warning("unstaging volume %s: %s", handle, error)
            return
        except CRIError as error:
            raise CleanupError(f"{what}: {error.grpc_text()}") from error
        except OSError as error:
            raise CleanupError(f"{what}: {error}") from error
        self._attachments.release(unique_name(driver, handle))

    async def _unstage(self, staged: Staged, owner: threads.Owner | None) -> None:
        driver = self._drivers.find(staged.driver)
        if driver is None:
            raise CleanupError(
                f'UnmountDevice failed for volume "{staged.handle}" : kubernetes.io/csi: '
                f"driver name {staged.driver} not found in the list of registered CSI drivers"
            )
        others = await asyncio.to_thread(mounts.references, staged.target)
        if others:
            # pkg/volume/util/operationexecutor: GenerateUnmountDeviceFunc.
            raise CleanupError(
                f'GetDeviceMountRefs check failed for volume "{staged.handle}" : the device mount path '
                f'"{staged.target}" is still mounted by other references [{" ".join(others)}]'
            )
        await driver.unstage(staged.handle, str(staged.target))
        await threads.call(str(staged.target), self._layout.forget_staged, staged, owner=owner)
