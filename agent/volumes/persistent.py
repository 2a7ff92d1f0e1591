"""Volumes with a lifetime of their own or on other machines: claims with their PersistentVolumes, NFS, CSI.

Each kind of source has a handler. The claim of a local volume in use is read again from time to time, so that an expansion is
noticed; until then the volume stays as it is. With many claims on the node that is less often, but not what a driver requires.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent import threads
from agent.keyed_tasks import Begin
from agent.usage import machine
from agent.usage.model import Filesystem, PersistentUse
from agent.volumes import csi_volume, hostpath, nfs
from agent.volumes.claimed_volumes import INTERVAL_SECONDS, VolumeSetUp, interval, raised
from agent.volumes.claims import BoundClaim, ClaimReader, claim_of
from agent.volumes.expansion import Expansion
from agent.volumes.local import LocalVolumes
from agent.volumes.local_path import LocalPathVolumes
from agent.volumes.mounted_volume import MountedVolume
from agent.volumes.node_affinity import VolumeNodeAffinity
from agent.volumes.payload import VolumeError
from kube.api import core_v1
from kube.clock import SYSTEM, Clock

Result = tuple[MountedVolume, float | None]
"""The volume that is set up, and when to set it up again (epoch seconds)."""


def is_persistent(volume: core_v1.Volume) -> bool:
    """Return whether a pod's volume is set up by this class."""
    sources = (volume.persistent_volume_claim, volume.ephemeral, volume.csi, volume.nfs)
    return any(source is not None for source in sources)


@dataclass(slots=True)
class _There:
    """A volume that is set up."""

    mounted: MountedVolume | None = None
    csi: csi_volume.Volume | None = None
    required: bool = False
    """True if its driver requires the next set-up at the time that it gave."""
    use: Filesystem | None = None
    interval: float = 0.0
    """Seconds between two times that it is set up."""
    next_setup: float = 0.0
    """Latest time of the next set-up, by the monotonic clock."""


class PersistentVolumes:
    """Sets up pods' volumes of these kinds below `pods_dir`."""

    def __init__(
        self,
        pods_dir: Path,
        claims: ClaimReader,
        local_path: LocalPathVolumes,
        affinity: VolumeNodeAffinity,
        csi: csi_volume.DriverVolumes | None = None,
        *,
        expansion: Expansion | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self._clock = clock
        self._pods_dir, self._claims, self._affinity, self._csi = pods_dir, claims, affinity, csi
        self._local = LocalVolumes(pods_dir, local_path, expansion)
        self._there: dict[str, dict[str, _There]] = {}
        """By pod UID: its volumes by name, for their usage."""
        self._claims_of: dict[str, set[str]] = {}
        """By pod UID: names of its claims that are read again."""
        self._claim_count = 0

    async def set_up(self, pod: core_v1.Pod, volume: core_v1.Volume, found: VolumeSetUp | None = None) -> Result:
        """Set one volume up, or see to it again; `found` is of the other volumes of the pod. Raise VolumeError."""
        now, there = self._clock.now().timestamp(), self._there.get(pod.metadata.uid or "", {}).get(volume.name)
        claim = claim_of(pod, volume)
        if there is not None and there.mounted is not None and there.csi is None and claim is not None:
            # What is due soon is not left for a round of its own.
            left = there.next_setup - self._clock.monotonic()
            if left > there.interval / 2:
                return there.mounted, now + left
        mounted, again = await self._set_up(pod, volume, found or VolumeSetUp(pod))
        known = self._there.setdefault(pod.metadata.uid or "", {}).setdefault(volume.name, _There())
        known.mounted = mounted
        if claim is not None and again is not None:
            self._add_claim(pod, claim[1])
            if not known.required:
                known.interval = max(again - now, interval(self._claim_count))
                known.next_setup, again = self._clock.monotonic() + known.interval, now + known.interval
        return mounted, again

    def _add_claim(self, pod: core_v1.Pod, name: str) -> None:
        claims = self._claims_of.setdefault(pod.metadata.uid or "", set())
        self._claim_count += name not in claims
        claims.add(name)

    async def _set_up(self, pod: core_v1.Pod, volume: core_v1.Volume, found: VolumeSetUp) -> Result:
        if volume.csi is not None:
            return await self._csi_volume(pod, csi_volume.of_pod(pod, volume), None)
        if volume.nfs is not None:
            return await self._nfs(pod, volume.name, volume.nfs, (), read_only=False), None
        bound = await found.read(self._claims, volume)
        read_only = bool(volume.persistent_volume_claim and volume.persistent_volume_claim.read_only)
        try:
            found.check_mode(volume, bound.persistent)
            there = self._there.get(pod.metadata.uid or "", {}).get(volume.name)
            if there is None or there.mounted is None:
                await self._affinity.check(bound.persistent)
            mounted, again = await self._claimed(pod, volume, bound, found, read_only=read_only)
            return replace(mounted, group=bound.group), again
        except VolumeError as error:
            # Upstream's events name the PersistentVolume.
            name = error.name or bound.persistent.metadata.name or ""
            raise VolumeError(str(error), step=error.step, name=name) from error

    async def _claimed(
        self, pod: core_v1.Pod, volume: core_v1.Volume, bound: BoundClaim, found: VolumeSetUp, *, read_only: bool
    ) -> Result:
        persistent = bound.persistent
        name, spec = persistent.metadata.name or "", persistent.spec
        if spec.csi is not None:
            return await self._csi_volume(
                pod, csi_volume.of_persistent(persistent, volume.name, read_only=read_only), bound
            )
        if spec.nfs is not None:
            return await self._nfs(pod, name, spec.nfs, spec.mount_options, read_only=read_only), None
        if spec.host_path is not None:
            uid, kind = pod.metadata.uid or "", spec.host_path.type or ""
            path = await threads.call(uid, hostpath.prepare, spec.host_path.path, kind, owner=threads.Owner.of(pod))
            return MountedVolume(path, read_only), None
        if spec.local is not None:
            if (name, read_only) not in found.local:
                try:
                    found.local[name, read_only] = await self._local.set_up(pod, bound, read_only=read_only)
                except VolumeError as error:
                    found.local[name, read_only] = error
            return raised(found.local[name, read_only]), self._clock.now().timestamp() + INTERVAL_SECONDS
        raise VolumeError(f'PV "{name}": no volume plugin matched')

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._local.forget(uid)
        self._there.pop(uid, None)
        self._claim_count -= len(self._claims_of.pop(uid, ()))

    def has_volumes_of(self, uid: str) -> bool:
        """Return whether this agent process called drivers for a pod."""
        return self._csi is not None and self._csi.has_volumes_of(uid)

    async def release(self, uid: str, owner: threads.Owner | None = None) -> None:
        """Have drivers take a pod's volumes down. Raise CleanupError."""
        self.forget(uid)
        if self._csi is not None:
            await self._csi.release(uid, owner)

    async def volume_stats(self, pod: core_v1.Pod) -> tuple[PersistentUse, ...]:
        """Return the usage of the pod's volumes: from the driver where it reports it, else from the file system or device."""
        now = self._clock.now().timestamp()
        found = []
        for volume in pod.spec.volumes:
            there = self._there.get(pod.metadata.uid or "", {}).get(volume.name)
            if there is None or there.mounted is None:
                continue
            if there.csi is None:
                use = await self._use(pod, there, there.mounted, now)
            else:
                assert self._csi is not None, "it set the volume up"
                use = await self._csi.volume_stats(pod, there.csi, now)
            if use is not None:
                found.append(PersistentUse(volume.name, claim_of(pod, volume), use))
        return tuple(found)

    async def _use(self, pod: core_v1.Pod, there: _There, mounted: MountedVolume, now: float) -> Filesystem | None:
        """Return how full a mount is; what was read last where it hangs, which is waited for once."""
        path, read = mounted.path, _device if mounted.device else _filesystem
        if not threads.under_way(f"use of {path}"):
            with contextlib.suppress(OSError):
                there.use = await threads.call_shared(f"use of {path}", read, now, path, owner=threads.Owner.of(pod))
        return there.use

    async def sweep(self, begin: Begin | None = None) -> None:
        """Have drivers take off the node what no pod uses."""
        if self._csi is not None:
            await self._csi.sweep(begin)

    async def close(self) -> None:
        """End the work that drivers did not finish."""
        if self._csi is not None:
            await self._csi.close()

    async def _csi_volume(self, pod: core_v1.Pod, volume: csi_volume.Volume, bound: BoundClaim | None) -> Result:
        if self._csi is None:
            raise VolumeError("no volume plugin matched")
        ready = await self._csi.set_up(pod, volume, bound)
        there = self._there.setdefault(pod.metadata.uid or "", {}).setdefault(volume.pod_volume, _There())
        there.csi, there.required = volume, ready.required
        return MountedVolume(ready.path, volume.read_only, device=volume.block), ready.again

    async def _nfs(
        self, pod: core_v1.Pod, name: str, source: core_v1.NFSVolumeSource, options: Sequence[str], *, read_only: bool
    ) -> MountedVolume:
        read_only = read_only or bool(source.read_only)
        target = self._pods_dir / (pod.metadata.uid or "") / "volumes" / "kubernetes.io~nfs" / name
        await nfs.mount(source.server, source.path, target, options, read_only=read_only, owner=threads.Owner.of(pod))
        return MountedVolume(target, read_only)


def _filesystem(now: float, path: Path) -> Filesystem | None:
    try:
        return machine.filesystem(now, path)
    except OSError:
        return None


def _device(now: float, path: Path) -> Filesystem | None:
    """Return the capacity of a block device, all that is known of it (pkg/volume/metrics_block.go)."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return Filesystem(now, os.lseek(opened, 0, os.SEEK_END), 0, 0, 0, 0, 0)
    except OSError:
        return None
    finally:
        os.close(opened)
