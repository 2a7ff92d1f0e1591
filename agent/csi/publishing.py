"""Has a driver stage a volume on the node and publish it to a pod, with all that its CSIDriver object requests.

The volume data file of each step is on disk before the driver is called, and removed where its answer is that the volume is not
there, so that only what may be there is undone. The CSIDriver object decides what the driver gets beside the volume: the pod's
name, tokens of its service account, the group of its files.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent import threads
from agent.csi import secrets
from agent.csi.layout import DamagedVolumeDataError, Layout
from agent.csi.unstaging import DriverAndHandle
from agent.volumes import ownership
from agent.volumes.csi_volume import Volume
from agent.volumes.payload import VolumeError
from agent.volumes.tokens import TokenCache
from cri.errors import CRIError
from kube.api import core_v1, storage_v1
from kube.client import Client
from kube.clock import format_time
from kube.csi import attachment_name

if TYPE_CHECKING:
    from agent.csi.driver import CSIClient
    from agent.csi.messages import VolumeCapability

log = logging.getLogger(__name__)
MOUNT_DEVICE = {False: "MountVolume.MountDevice", True: "MapVolume.SetUpDevice"}
"""Upstream's name of the first step in events, by whether the volume is a block device."""


class Publisher:
    """Stages and publishes volumes on the node of this name."""

    def __init__(self, client: Client, node: str, layout: Layout, tokens: TokenCache) -> None:
        self._client, self._node, self._layout, self._tokens = client, node, layout, tokens

    async def publish(
        self,
        driver: CSIClient,
        pod: core_v1.Pod,
        volume: Volume,
        spec: storage_v1.CSIDriverSpec,
        published: Mapping[str, str],
        *,
        attached: bool,
        staged_at: dict[DriverAndHandle, str],
    ) -> None:
        """Write the data files, stage the volume where it is new, and publish it. Raise VolumeError, CRIError, StatusError.

        `staged_at` has the staging paths of volumes that are staged; the volume is added. Callers hold the volume's lock.
        """
        from agent.csi import request
        from agent.csi.messages import Ability

        uid = pod.metadata.uid or ""
        group = pod.spec.security_context.fs_group if pod.spec.security_context else None
        delegated = group is not None and await driver.can(Ability.VOLUME_MOUNT_GROUP)
        capability = request.capability(
            volume,
            tells_writers_apart=await driver.can(Ability.SINGLE_NODE_MULTI_WRITER),
            group=group if delegated else None,
        )
        attachment = attachment_name(volume.driver, volume.handle, self._node) if attached else ""
        new = await asyncio.to_thread(self._layout.write_pod_data, uid, volume, self._node, attachment)
        staged = ""
        if not volume.ephemeral and await driver.stages():
            staged = str(self._layout.staging(volume))
            if staged_at.get((volume.driver, volume.handle)) != staged:
                await self._stage(driver, pod, volume, capability, published, staged, new=new)
                staged_at[volume.driver, volume.handle] = staged
        context, secret = await self._context(pod, volume, spec)
        target = self._layout.target(uid, volume)
        try:
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
        except CRIError as error:
            if error.final:
                await self._forget(pod, volume, published=new)
            raise
        if group is not None and not delegated and request.wants_group(spec.fs_group_policy, volume):
            await _set_group(pod, volume, target, group)

    async def _stage(
        self,
        driver: CSIClient,
        pod: core_v1.Pod,
        volume: Volume,
        capability: VolumeCapability,
        published: Mapping[str, str],
        path: str,
        *,
        new: bool,
    ) -> None:
        """Write the staging path's data file and have the driver stage the volume. `new`: the pod's data file is."""
        secret = await secrets.read(self._client, volume.stage_secret)
        new_staging = await asyncio.to_thread(self._layout.write_staging_data, volume)
        try:
            await driver.stage(
                volume.handle, path, capability, context=volume.attributes, published=published, secrets=secret
            )
        except CRIError as error:
            if error.final:
                await self._forget(pod, volume, staging=new_staging, published=new)
            raise VolumeError(error.grpc_text(), step=MOUNT_DEVICE[volume.block]) from error

    async def _context(
        self, pod: core_v1.Pod, volume: Volume, spec: storage_v1.CSIDriverSpec
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return the volume context and the secrets with which the driver publishes the volume to the pod."""
        from agent.csi import request

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
        return context, secret

    async def _forget(
        self, pod: core_v1.Pod, volume: Volume, *, staging: bool = False, published: bool = False
    ) -> None:
        """Remove what this call made for steps that the driver refused; an earlier one's may be in use."""
        uid, owner = pod.metadata.uid or "", threads.Owner.of(pod)
        try:
            if published:
                for one in await asyncio.to_thread(self._layout.published, uid):
                    if (one.driver, one.handle) == (volume.driver, volume.handle):
                        await threads.call(uid, self._layout.forget_published, one, owner=owner)
            if staging:
                for step in await asyncio.to_thread(self._layout.staged_volume, volume.driver, volume.handle):
                    await threads.call(str(step.target), self._layout.forget_staged, step, owner=owner)
        except (OSError, DamagedVolumeDataError) as error:
            log.warning(
                "the data files of volume %s, which its driver refused, are removed with its pod: %s",
                volume.handle,
                error,
            )

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


async def _set_group(pod: core_v1.Pod, volume: Volume, target: Path, group: int) -> None:
    """Give the volume's files to the pod's fsGroup. Raise VolumeError."""
    policy = pod.spec.security_context.fs_group_change_policy if pod.spec.security_context else None
    set_ownership = partial(ownership.set_ownership, target, group, only_if_root_differs=policy == "OnRootMismatch")
    try:
        await threads.call(pod.metadata.uid or "", set_ownership, owner=threads.Owner.of(pod))
    except OSError as error:
        raise VolumeError(f"applyFSGroup failed for vol {volume.handle}: {error}") from error
