"""Sets CSI volumes up for pods and tears them down: attach, stage, publish, and the reverse.

A volume is staged once on the node and published to each pod. Each call is idempotent by CSI's rules, so after a restart of the
agent every call is repeated and its result is not stored; what to undo is read from disk (layout.py). A lock for
each volume keeps its steps in order: the last pod's unstaging and the next one's staging must not overlap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from agent import threads
from agent.csi import csi_driver, one_pod, statistics
from agent.csi.attaching import Attaching
from agent.csi.attachments import Attachments
from agent.csi.drivers import CSIDrivers
from agent.csi.expansion import DriverExpansion
from agent.csi.layout import DamagedVolumeDataError, Layout, Published
from agent.csi.publishing import MOUNT_DEVICE, Publisher
from agent.csi.unstaging import DriverAndHandle, Unstaging
from agent.keyed_tasks import Begin, KeyedTasks
from agent.usage.model import Filesystem
from agent.volumes.claims import BoundClaim
from agent.volumes.cleanup import CleanupError
from agent.volumes.csi_volume import Ready, Volume
from agent.volumes.payload import VolumeError
from cri.errors import CRIError
from kube.api import core_v1, storage_v1
from kube.client import Client
from kube.clock import Clock
from kube.csi import unique_name
from kube.errors import StatusError
from kube.informer import Change
from kube.locks import Locks

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.5, 122.0
"""Pauses between calls of a driver that does not unstage a volume: upstream's."""
REPUBLISH_SECONDS = 60.0
"""Interval of publishing a pod's volume again where its driver requires republishing, or it may be expanded."""


class CSIVolumes:
    """The CSI volumes of all pods on this node."""

    def __init__(
        self,
        client: Client,
        drivers: CSIDrivers,
        attachments: Attachments,
        layout: Layout,
        publisher: Publisher,
        expansion: DriverExpansion,
        *,
        clock: Clock,
        pods_changed: Callable[[Iterable[str]], None] = lambda uids: None,
    ) -> None:
        """`pods_changed` is called with the UIDs of pods whose volumes are to be set up again."""
        self._pods_changed = pods_changed
        self._client, self._drivers, self._attachments = client, drivers, attachments
        self._layout, self._publisher, self._expansion, self._clock = layout, publisher, expansion, clock
        self._unstaging = Unstaging(drivers, attachments, layout)
        self._attaching = Attaching(client, attachments, self._unstaging)
        self._retries = KeyedTasks()
        """Volumes that the driver did not unstage, by their unique names."""
        self._locks = Locks()
        self._published: set[tuple[str, str]] = set()
        """Pod and volume name of what was published in this agent's life."""
        self._staged_at: dict[DriverAndHandle, str] = {}
        """Staging paths of volumes that are staged, by this agent process; the next pod's is not staged again."""
        self._tried: dict[str, set[tuple[str, str]]] = {}
        """By pod UID: driver and handle of volumes that were begun, also without a data file yet."""

    async def restore(self) -> None:
        """Restore the volumes in use of an earlier agent process; call it before the node's status is written."""
        await self._attachments.restore(self._layout)

    def driver_changed(self, change: Change[storage_v1.CSIDriver]) -> None:
        """Publish the volumes of a driver's pods again if it requires that by now, also if its object was recreated."""
        before = change.old is not None and bool(change.old.spec.requires_republish)
        if change.type != "DELETED" and change.new.spec.requires_republish and not before:
            self._pods_changed([uid for uid, tried in self._tried.items() if any(d == change.key for d, _ in tried)])

    async def set_up(self, pod: core_v1.Pod, volume: Volume, bound: BoundClaim | None = None) -> Ready:
        """Set a volume up, or update it. Raise VolumeError with upstream's message."""
        uid = pod.metadata.uid or ""
        step = "MapVolume.SetUpDevice" if volume.block else "MountVolume.SetUp"
        try:
            async with self._locks.of(volume.unique_name):
                return await self._set_up(uid, pod, volume, bound)
        except CRIError as error:
            raise VolumeError(error.grpc_text(), step=step, name=volume.name) from error
        except StatusError as error:
            raise VolumeError(str(error), step=step, name=volume.name) from error
        except VolumeError as error:
            raise VolumeError(str(error), step=error.step or step, name=volume.name) from error

    async def _set_up(self, uid: str, pod: core_v1.Pod, volume: Volume, bound: BoundClaim | None) -> Ready:
        try:
            driver = self._drivers.get(volume.driver)
        except VolumeError as error:
            if volume.ephemeral:
                raise VolumeError(f"kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: {error}") from error
            what = "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient"
            raise VolumeError(f"{what}: {error}", step=MOUNT_DEVICE[volume.block]) from error
        about = await csi_driver.read(self._client, volume.driver)
        spec = csi_driver.spec_of(about)
        self._tried.setdefault(uid, set()).add((volume.driver, volume.handle))
        known = (uid, volume.name) in self._published
        if volume.one_pod and not known:
            await asyncio.to_thread(one_pod.check, self._layout, uid, volume)
        if not known or spec.requires_republish:
            if not volume.block:
                csi_driver.check_lifecycle_mode(volume.driver, about, ephemeral=volume.ephemeral)
            published: Mapping[str, str] = {}
            if not volume.ephemeral and not known:
                published, spec = await self._attaching.attach(volume, spec)
            elif not volume.ephemeral and csi_driver.requires_attachment(spec):
                published = await self._attachments.metadata(volume)
            # Also if the driver no longer requires the attachment with which a pod has the volume.
            attached = self._attachments.is_in_use(volume.unique_name)
            await self._publisher.publish(
                driver, pod, volume, spec, published, attached=attached, staged_at=self._staged_at
            )
            self._published.add((uid, volume.name))
        growing = bound is not None and await self._expansion.possible(driver)
        if bound is not None and growing:
            staged = str(self._layout.staging(volume)) if await driver.stages() else ""
            await self._expansion.finish(pod, driver, volume, bound, self._path(uid, volume), staged)
        required = bool(spec.requires_republish)
        again = self._clock.now().timestamp() + REPUBLISH_SECONDS if required or growing else None
        return Ready(self._path(uid, volume), again, required)

    def _path(self, uid: str, volume: Volume) -> Path:
        return self._layout.device_link(uid, volume.name) if volume.block else self._layout.target(uid, volume)

    async def volume_stats(self, pod: core_v1.Pod, volume: Volume, now: float) -> Filesystem | None:
        """Ask the driver for a volume's usage; None if it does not support that."""
        driver = self._drivers.find(volume.driver)
        if driver is None:
            return None
        target = self._layout.target(pod.metadata.uid or "", volume)
        return await statistics.read(driver, volume, target, self._layout.staging(volume), now)

    def has_volumes_of(self, uid: str) -> bool:
        """Return whether this agent process began any volume of a pod."""
        return bool(self._tried.get(uid))

    async def release(self, uid: str, owner: threads.Owner | None = None) -> None:
        """Take a pod's volumes down, and off the node where it was the last. Raise CleanupError to be retried.

        The pod does not wait for a volume that cannot be unstaged, because the next one may use it: that is retried here.
        """
        # A volume without a data file yet may be in use by the node's status, too.
        started = set(self._tried.get(uid, ()))
        for published in await self._published_for(uid):
            async with self._locks.of(unique_name(published.driver, published.handle)):
                await self._unpublish(published, owner)
            started.add((published.driver, published.handle))
            # Retried where the next step fails, although the file is removed by then.
            self._tried.setdefault(uid, set()).add((published.driver, published.handle))
        for driver, handle in sorted(started):
            if not await self._try_to_unstage(driver, handle, uid, owner):
                self._retries.begin(unique_name(driver, handle), partial(self._unstage_later, driver, handle))
            self._tried[uid].discard((driver, handle))
        self._tried.pop(uid, None)

    async def _published_for(self, uid: str) -> list[Published]:
        try:
            return await asyncio.to_thread(self._layout.published, uid)
        except OSError as error:
            raise CleanupError(f"kubernetes.io/csi: {error}") from error

    async def sweep(self, begin: Begin | None = None) -> None:
        """Take off the node what no pod uses: an agent died between two steps, or a driver was away.

        Each driver's volumes are seen to by themselves where `begin` makes tasks, by a key.
        """
        try:
            unused = await asyncio.to_thread(self._unstaging.unused)
        except (OSError, DamagedVolumeDataError) as error:
            log.warning("no volume is unstaged while the volumes in use are unknown: %s", error)
            return
        drivers: dict[str, list[str]] = {}
        for driver, handle in sorted(unused.difference(*self._tried.values())):
            drivers.setdefault(driver, []).append(handle)
        for driver, handles in drivers.items():
            if begin is not None:
                begin(f"unused volumes of {driver}", partial(self._unstage_unused, driver, handles))
            else:
                await self._unstage_unused(driver, handles)

    async def _unstage_unused(self, driver: str, handles: Sequence[str]) -> None:
        for handle in handles:
            await self._try_to_unstage(driver, handle)

    async def _unstage_later(self, driver: str, handle: str) -> None:
        delay = FIRST_RETRY_SECONDS
        while True:
            await self._clock.sleep(delay)
            if await self._try_to_unstage(driver, handle):
                return
            delay = min(delay * 2, LAST_RETRY_SECONDS)

    async def _try_to_unstage(
        self, driver: str, handle: str, leaving: str = "", owner: threads.Owner | None = None
    ) -> bool:
        """Take a volume off the node unless a pod uses it, other than the one that leaves; return False if that failed."""
        async with self._locks.of(unique_name(driver, handle)):
            if not any((driver, handle) in tried for uid, tried in self._tried.items() if uid != leaving):
                self._staged_at.pop((driver, handle), None)  # also if that fails: it may be under way
                try:
                    await self._unstaging.unstage(driver, handle, owner)
                except CleanupError as error:
                    log.warning("%s", error)
                    return False
        return True

    async def close(self) -> None:
        """End the retries; the next agent's sweep goes on with them."""
        await self._retries.close()

    async def _unpublish(self, published: Published, owner: threads.Owner | None) -> None:
        driver = self._drivers.find(published.driver)
        what = f'UnmountVolume.TearDown failed for volume "{published.name}" : kubernetes.io/csi'
        if driver is None:
            raise CleanupError(
                f"{what}: Unmounter.TearDownAt failed to get CSI client: "
                f"driver name {published.driver} not found in the list of registered CSI drivers"
            )
        self._published.discard((published.uid, published.name))
        try:
            await driver.unpublish(published.handle, str(published.target))
            await threads.call(published.uid, self._layout.forget_published, published, owner=owner)
        except (CRIError, OSError) as error:
            text = error.grpc_text() if isinstance(error, CRIError) else str(error)
            raise CleanupError(f"{what}: Unmounter.TearDownAt failed: {text}") from error
