"""Sets CSI volumes up for pods and takes them down: attach, stage, publish, and the same backwards.

A volume is staged once on the node and published to each pod. Each call is idempotent by CSI's rules, so after a restart of
the agent everything is asked for again rather than remembered; what to undo is read from the notes on disk (layout.py). One
lock a volume keeps its steps in order: the last pod's unstaging and the next one's staging must not cross.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agent.csi import secrets
from agent.csi.attachments import Attachments
from agent.csi.drivers import Drivers
from agent.csi.expansion import Expansion
from agent.csi.layout import Layout, Published
from agent.csi.volume import Volume
from agent.usage.model import Filesystem
from agent.volumes import ownership
from agent.volumes.claims import Bound
from agent.volumes.cleanup import CleanupError
from agent.volumes.payload import VolumeError
from agent.volumes.tokens import TokenCache
from cri.errors import CRIError
from kube.api import core_v1, storage_v1
from kube.client import Client
from kube.clock import Clock, format_time
from kube.csi import attachment_name, unique_name
from kube.errors import StatusError

log = logging.getLogger(__name__)

AGAIN_SECONDS = 60.0
"""How often a pod's volume is looked at again where its driver wants to hear of it, or it may grow."""
_MOUNT_DEVICE = {False: "MountVolume.MountDevice", True: "MapVolume.SetUpDevice"}


@dataclass(frozen=True, slots=True)
class Ready:
    """A volume that is set up: the folder, or the link to the device, and when to look again (epoch seconds)."""

    path: Path
    again: float | None = None


class CSIVolumes:
    """The CSI volumes of all pods on this node."""

    def __init__(
        self,
        client: Client,
        node: str,
        drivers: Drivers,
        attachments: Attachments,
        layout: Layout,
        tokens: TokenCache,
        expansion: Expansion,
        *,
        clock: Clock,
    ) -> None:
        self._client, self._node, self._drivers, self._attachments = client, node, drivers, attachments
        self._layout, self._tokens, self._expansion, self._clock = layout, tokens, expansion, clock
        self._locks: dict[str, asyncio.Lock] = {}
        self._published: set[tuple[str, str]] = set()
        """Pod and volume name of what was published in this agent's life."""

    async def restore(self) -> None:
        """Take over what an agent before this one had begun; call it before the node's status is written."""
        found = await asyncio.to_thread(lambda: list(self._layout.all_published()))
        self._attachments.restore(unique_name(p.driver, p.handle) for p in found if p.attached)

    # -- setting up -----------------------------------------------------------------------------------------------
    async def set_up(self, pod: core_v1.Pod, volume: Volume, bound: Bound | None = None) -> Ready:
        """Bring a volume to the pod, or see to it again. Raise VolumeError in upstream's words."""
        uid = pod.metadata.uid or ""
        step = "MapVolume.SetUpDevice" if volume.block else "MountVolume.SetUp"
        try:
            async with self._lock(volume.unique_name):
                return await self._set_up(uid, pod, volume, bound)
        except CRIError as error:
            raise VolumeError(error.grpc_text(), step=step, name=volume.name) from error
        except StatusError as error:
            raise VolumeError(str(error), step=step, name=volume.name) from error
        except VolumeError as error:
            raise VolumeError(str(error), step=error.step or step, name=volume.name) from error

    async def _set_up(self, uid: str, pod: core_v1.Pod, volume: Volume, bound: Bound | None) -> Ready:
        try:
            driver = self._drivers.get(volume.driver)
        except VolumeError as error:
            if volume.ephemeral:
                raise VolumeError(f"kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: {error}") from error
            what = "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient"
            raise VolumeError(f"{what}: {error}", step=_MOUNT_DEVICE[volume.block]) from error
        about = await self._about(volume.driver)
        if volume.ephemeral:
            _check_ephemeral(volume.driver, about)
        spec = about.spec if about is not None else storage_v1.CSIDriverSpec()
        known = (uid, volume.name) in self._published
        if not known or spec.requires_republish:
            published: Mapping[str, str] = {}
            attach = not volume.ephemeral and spec.attach_required is not False
            if attach and not known:
                published = await self._attach(volume)
            elif attach:
                published = await self._attachments.metadata(volume)
            await self._bring(uid, pod, volume, spec, published, attached=attach, fresh=not known)
            self._published.add((uid, volume.name))
        growing = bound is not None and await self._expansion.possible(driver, bound.persistent)
        if bound is not None and growing:
            staged = str(self._layout.staging(volume)) if await driver.stages() else ""
            await self._expansion.finish(pod, driver, volume, bound, self._path(uid, volume), staged)
        again = spec.requires_republish or growing
        return Ready(self._path(uid, volume), self._clock.now().timestamp() + AGAIN_SECONDS if again else None)

    def _path(self, uid: str, volume: Volume) -> Path:
        return self._layout.device_link(uid, volume.name) if volume.block else self._layout.target(uid, volume)

    async def _attach(self, volume: Volume) -> Mapping[str, str]:
        step = "MapVolume.WaitForAttach" if volume.block else "MountVolume.WaitForAttach"
        try:
            return await self._attachments.wait(volume)
        except VolumeError as error:
            raise VolumeError(str(error), step=step) from error

    async def _bring(
        self,
        uid: str,
        pod: core_v1.Pod,
        volume: Volume,
        spec: storage_v1.CSIDriverSpec,
        published: Mapping[str, str],
        *,
        attached: bool,
        fresh: bool,
    ) -> None:
        """Note, stage and publish."""
        from agent.csi import request
        from agent.csi.messages import Ability

        driver = self._drivers.get(volume.driver)
        group = pod.spec.security_context.fs_group if pod.spec.security_context else None
        delegated = group is not None and await driver.can(Ability.VOLUME_MOUNT_GROUP)
        capability = request.capability(
            volume,
            tells_writers_apart=await driver.can(Ability.SINGLE_NODE_MULTI_WRITER),
            group=group if delegated else None,
        )
        attachment = attachment_name(volume.driver, volume.handle, self._node) if attached else ""
        await asyncio.to_thread(self._layout.write_pod_note, uid, volume, self._node, attachment)
        staged = ""
        if not volume.ephemeral and await driver.stages():
            staged = str(self._layout.staging(volume))
            if fresh:
                await asyncio.to_thread(self._layout.write_staging_note, volume)
                try:
                    await driver.stage(
                        volume.handle,
                        staged,
                        capability,
                        context=volume.attributes,
                        published=published,
                        secrets=await secrets.read(self._client, volume.stage_secret),
                    )
                except CRIError as error:
                    raise VolumeError(error.grpc_text(), step=_MOUNT_DEVICE[volume.block]) from error
        context = dict(volume.attributes)
        if spec.pod_info_on_mount:
            context |= request.pod_context(pod, ephemeral=volume.ephemeral)
        secret = await secrets.read(self._client, volume.publish_secret)
        if spec.token_requests:
            text = request.tokens_context(await self._pod_tokens(pod, spec.token_requests))
            if spec.service_account_token_in_secrets:
                secret[request.TOKENS] = text
            else:
                context[request.TOKENS] = text
        target = self._layout.target(uid, volume)
        await driver.publish(
            volume.handle,
            str(target),
            capability,
            staged=staged,
            read_only=volume.read_only,
            context=context,
            published=published,
            secrets=secret,
        )
        if fresh and group is not None and not delegated and request.wants_group(spec.fs_group_policy, volume):
            policy = pod.spec.security_context.fs_group_change_policy if pod.spec.security_context else None
            try:
                await asyncio.to_thread(ownership.give, target, group, only_if_root_differs=policy == "OnRootMismatch")
            except OSError as error:
                raise VolumeError(f"applyFSGroup failed for vol {volume.handle}: {error}") from error

    async def _about(self, driver: str) -> storage_v1.CSIDriver | None:
        try:
            return await self._client.get(storage_v1.CSIDriver, driver)
        except StatusError as error:
            if error.not_found:
                return None
            raise

    async def _pod_tokens(
        self, pod: core_v1.Pod, requests: list[storage_v1.TokenRequest]
    ) -> dict[str, tuple[str, str]]:
        found = {}
        for request in requests:
            source = core_v1.ServiceAccountTokenProjection(
                audience=request.audience or None, expiration_seconds=request.expiration_seconds
            )
            token = await self._tokens.get(pod, source)
            found[request.audience] = (token.text, format_time(datetime.fromtimestamp(token.expires_at, UTC)))
        return found

    async def figures(self, pod: core_v1.Pod, volume: Volume, now: float) -> Filesystem | None:
        """Ask the driver how full a volume is; None where it cannot say."""
        from agent.csi.messages import Ability, api

        driver = self._drivers.find(volume.driver)
        try:
            if driver is None or not await driver.can(Ability.GET_VOLUME_STATS):
                return None
            staged = "" if volume.ephemeral or not await driver.stages() else str(self._layout.staging(volume))
            target = str(self._layout.target(pod.metadata.uid or "", volume))
            answer = await driver.statistics(volume.handle, target, staged)
        except CRIError as error:
            log.info("figures of volume %s: %s", volume.name, error)
            return None
        size = next((use for use in answer.usage if use.unit == api.VolumeUsage.BYTES), api.VolumeUsage())
        files = next((use for use in answer.usage if use.unit == api.VolumeUsage.INODES), api.VolumeUsage())
        return Filesystem(now, size.total, size.available, size.used, files.total, files.available, files.used)

    # -- taking down ------------------------------------------------------------------------------------------------
    async def release(self, uid: str) -> None:
        """Take a pod's volumes down, and off the node where it was the last. Raise CleanupError to be tried again."""
        for published in await asyncio.to_thread(self._layout.published, uid):
            async with self._lock(unique_name(published.driver, published.handle)):
                await self._unpublish(published)
                if not published.ephemeral:
                    await self._unstage(published.driver, published.handle)

    async def sweep(self) -> None:
        """Take off the node what no pod uses: an agent died between two steps, or a driver was away."""
        for staged in await asyncio.to_thread(self._layout.staged):
            async with self._lock(unique_name(staged.driver, staged.handle)):
                try:
                    await self._unstage(staged.driver, staged.handle)
                except CleanupError as error:
                    log.warning("%s", error)

    async def _unpublish(self, published: Published) -> None:
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
            await asyncio.to_thread(self._layout.forget_published, published)
        except (CRIError, OSError) as error:
            text = error.grpc_text() if isinstance(error, CRIError) else str(error)
            raise CleanupError(f"{what}: Unmounter.TearDownAt failed: {text}") from error

    async def _unstage(self, name: str, handle: str) -> None:
        """Take a volume off the node unless a pod uses it. Raise CleanupError."""
        used = await asyncio.to_thread(
            lambda: any((p.driver, p.handle) == (name, handle) for p in self._layout.all_published())
        )
        if used:
            return
        for staged in await asyncio.to_thread(self._layout.staged):
            if (staged.driver, staged.handle) != (name, handle):
                continue
            what = f'UnmountDevice failed for volume "{handle}" : kubernetes.io/csi'
            driver = self._drivers.find(name)
            if driver is None:
                raise CleanupError(f"{what}: driver name {name} not found in the list of registered CSI drivers")
            try:
                await driver.unstage(handle, str(staged.target))
                await asyncio.to_thread(self._layout.forget_staged, staged)
            except (CRIError, OSError) as error:
                text = error.grpc_text() if isinstance(error, CRIError) else str(error)
                raise CleanupError(f"{what}: {text}") from error
        self._attachments.release(unique_name(name, handle))

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())


def _check_ephemeral(name: str, about: storage_v1.CSIDriver | None) -> None:
    """Refuse a pod's own volume where its driver does not say that it makes such. Raise VolumeError."""
    if about is None:
        raise VolumeError(
            f'kubernetes.io/csi: volume mode "Ephemeral" not supported by driver {name} (no CSIDriver object)'
        )
    modes = about.spec.volume_lifecycle_modes or ["Persistent"]
    if "Ephemeral" not in modes:
        listed = " ".join(f'"{mode}"' for mode in modes)
        text = f'volume mode "Ephemeral" not supported by driver {name} (only supports [{listed}])'
        raise VolumeError(f"kubernetes.io/csi: mounter.SetUpAt failed to check volume lifecycle mode: {text}")
