"""Sets up the volumes of pods.

`mount` sets all of a pod's volumes up or updates them, and may be called again at any time: after a ConfigMap changed, when a
token expires, when the agent restarts. It asks the API only for what is not cached, and does its file work for all volumes in
one call to a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent import threads
from agent.keyed_tasks import Begin
from agent.podspec.environment import ContainerConfigError, References
from agent.podspec.security import AnyContainer
from agent.usage.model import PersistentUse
from agent.volumes import cleanup, container_mounts, mount_budget, requested_sources
from agent.volumes.claimed_volumes import VolumeSetUp
from agent.volumes.csi_volume import PLUGIN
from agent.volumes.mounted_volume import MountedVolume
from agent.volumes.payload import AttachLimitError, Sources, VolumeError, single_user
from agent.volumes.persistent import PersistentVolumes, is_persistent
from agent.volumes.pod_volumes import FolderError, MountError, PodVolumes, error_text
from agent.volumes.tokens import TokenCache
from agent.volumes.trust_bundles import TrustBundles
from agent.volumes.used import used_volumes
from cri.messages import Mount
from kube.api import core_v1
from kube.quantity import Quantity

log = logging.getLogger(__name__)

BUNDLE_SECONDS = 60.0


class MountsFailed(Exception):
    """Volumes of the pod could not be set up; `failed` has the error of each. The others are set up.

    `over_limit` names those that cannot be attached because the node has as many as it can.
    """

    def __init__(self, failed: Sequence[MountError], over_limit: Sequence[str] = ()) -> None:
        super().__init__("; ".join(map(str, failed)))
        self.failed, self.over_limit = tuple(failed), tuple(over_limit)


@dataclass(slots=True)
class _Prepared:
    """Sources of a pod's own volumes, and its persistent volumes, which are set up before them."""

    set_up: VolumeSetUp
    tokens: dict[tuple[str, str], str] = field(default_factory=dict)
    bundles: dict[tuple[str, str], str] = field(default_factory=dict)
    claims: dict[str, MountedVolume] = field(default_factory=dict)
    failed: list[MountError] = field(default_factory=list)
    over_limit: list[str] = field(default_factory=list)
    unready: set[str] = field(default_factory=set)
    again: float | None = None
    """Time at which all is repeated (epoch seconds)."""

    def repeat_at(self, time: float | None) -> None:
        if time is not None:
            self.again = min(self.again or time, time)


class VolumeManager:
    """The volumes of all pods below `pods_dir`."""

    def __init__(
        self,
        pods_dir: Path,
        references: References,
        tokens: TokenCache,
        persistent: PersistentVolumes,
        bundles: TrustBundles,
        *,
        host_ips: Callable[[], tuple[str, ...]] = tuple,
        allocatable: Callable[[], Mapping[str, Quantity]] = dict,
        recursive_read_only: Callable[[core_v1.Pod], bool] = lambda pod: False,
    ) -> None:
        self._recursive_read_only = recursive_read_only
        self._pods_dir, self._references, self._tokens = pods_dir, references, tokens
        self._persistent, self._bundles = persistent, bundles
        self._host_ips, self._allocatable = host_ips, allocatable
        self._own = PodVolumes(pods_dir)
        self._mount_budget = mount_budget.MountBudget()
        self._owners: dict[str, threads.Owner] = {}

    def pod_dir(self, uid: str) -> Path:
        return self._pods_dir / uid

    async def mount(
        self, pod: core_v1.Pod, pod_ips: tuple[str, ...] = ()
    ) -> tuple[dict[str, MountedVolume], float | None]:
        """Set up every volume that a container uses; return them by name, and when to call again. Raise MountsFailed."""
        used = used_volumes(pod)
        volumes = [volume for volume in pod.spec.volumes if volume.name in used]
        if problem := mount_budget.too_many(len(volumes)):
            raise MountsFailed([MountError(volumes[0].name, problem)])
        mounted_volumes = [name for name in mount_budget.of_volumes(pod) if name in used]
        if problem := self._mount_budget.take(pod, len(mounted_volumes)):
            raise MountsFailed([MountError(mounted_volumes[0], problem)])
        if exceeding := requested_sources.too_many(volumes):
            raise MountsFailed([MountError(*exceeding)])
        found = _Prepared(VolumeSetUp(pod))
        for volume in volumes:
            try:
                await self._prepare(pod, volume, found)
            except VolumeError as error:
                found.failed.append(MountError(error.name or volume.name, str(error), error.step))
                found.unready.add(volume.name)
            except OSError as error:
                found.failed.append(MountError(volume.name, error_text(error)))
                found.unready.add(volume.name)
            except AttachLimitError:
                found.over_limit.append(volume.name)
                found.unready.add(volume.name)
        sources = Sources(
            references=self._references,
            allocatable=self._allocatable(),
            host_ips=self._host_ips(),
            pod_ips=pod_ips,
            tokens=found.tokens,
            bundles=found.bundles,
            token_uid=single_user(pod),
        )
        ready = [volume for volume in volumes if volume.name not in found.unready]
        owner = self._owners[pod.metadata.uid or ""] = threads.Owner.of(pod)
        try:
            mounted, wrong = await threads.call(
                owner.pod, self._own.set_up, pod, ready, sources, found.claims, owner=owner
            )
        except OSError as error:  # too many calls hang
            if not ready:
                raise FolderError(error_text(error)) from error
            raise MountsFailed([*found.failed, MountError(ready[0].name, error_text(error))]) from error
        if found.failed or wrong or found.over_limit:
            raise MountsFailed(found.failed + wrong, found.over_limit)
        return mounted, found.again

    async def _prepare(self, pod: core_v1.Pod, volume: core_v1.Volume, found: _Prepared) -> None:
        """Read what a volume needs of the API, or set up a persistent one. Raise VolumeError, AttachLimitError, OSError."""
        for source in volume.projected.sources if volume.projected else ():
            if source.service_account_token is not None:
                token = await self._tokens.get(pod, source.service_account_token)
                found.tokens[volume.name, source.service_account_token.path] = token.text
                found.repeat_at(token.renew_at)
            if source.cluster_trust_bundle is not None:
                text = await self._bundles.read(source.cluster_trust_bundle)
                # Bundles are not watched: a pod that mounts one reads it once a minute.
                found.repeat_at(self._tokens.now() + BUNDLE_SECONDS)
                if text is not None:
                    found.bundles[volume.name, source.cluster_trust_bundle.path] = text
        if is_persistent(volume):
            found.claims[volume.name], again = await self._persistent.set_up(pod, volume, found.set_up)
            found.repeat_at(again)

    # -- what containers mount ----------------------------------------------------------------------------------------
    async def container_mounts(
        self, pod: core_v1.Pod, container: AnyContainer, mounted: Mapping[str, MountedVolume], env: Mapping[str, str]
    ) -> list[Mount]:
        """Return the container's volume mounts, subPaths bound. Raise ContainerConfigError."""
        make = container_mounts.ContainerMounts(
            self.pod_dir(pod.metadata.uid or ""), container, recursive_read_only=self._recursive_read_only(pod)
        )
        if any(mount.sub_path or mount.sub_path_expr for mount in container.volume_mounts):
            every = len(mount_budget.of_volumes(pod)) + mount_budget.of_sub_paths(pod)
            if problem := self._mount_budget.take(pod, every):
                raise ContainerConfigError(problem)
            owner = threads.Owner.of(pod)
            try:
                return await threads.call(owner.pod, make.mounts, mounted, env, owner=owner)
            except OSError as error:
                raise ContainerConfigError(f"failed to prepare subPath: {error_text(error)}") from error
        return make.mounts(mounted, env)

    # -- the end ------------------------------------------------------------------------------------------------------
    async def clean(self, uid: str, owner: threads.Owner | None = None) -> None:
        """Unmount and delete everything of a pod. Raise CleanupError while something stays mounted.

        `owner` is that of a pod of which this agent has mounted nothing, if it is known.
        """
        owner = (self._owners.get(uid, owner) or threads.Owner(uid)).for_purpose(threads.REMOVAL)
        folder = self.pod_dir(uid)
        if not await threads.returned(uid, threads.HUNG_SECONDS):
            log.warning(
                "pod %s: a call to one of its volumes has not returned: its emptyDir volumes are removed first", uid
            )
            await threads.call(f"emptyDir volumes of {uid}", cleanup.remove_empty_dirs, folder, owner=owner)
        done = await threads.call(uid, _take_down, folder, owner=owner)
        if not done or self._persistent.has_volumes_of(uid):
            await self._persistent.release(uid, owner)
        if not done:
            await threads.call(uid, cleanup.remove_tree, folder, owner=owner)
        self._persistent.forget(uid)
        self._own.forget(uid)
        self._mount_budget.forget(uid)
        self._owners.pop(uid, None)
        self._tokens.forget(uid)

    async def persistent_use(self, pod: core_v1.Pod) -> tuple[PersistentUse, ...]:
        """Return the usage of a pod's persistent volumes."""
        return await self._persistent.volume_stats(pod)

    async def sweep(self, begin: Begin | None = None) -> None:
        """Take off the node what no pod uses, by tasks that `begin` makes where it is given."""
        await self._persistent.sweep(begin)

    async def close(self) -> None:
        """End the work that drivers did not finish."""
        await self._persistent.close()

    def orphans(self, known: set[str]) -> list[str]:
        """List pods that have a folder but are not known."""
        return cleanup.orphans(self._pods_dir, known)


def _take_down(folder: Path) -> bool:
    """Unmount and delete what a pod has; False if drivers have to release something first. Raise CleanupError."""
    if any((folder / kind / PLUGIN).is_dir() for kind in ("volumes", "volumeDevices")):
        if (sub_paths := folder / cleanup.SUB_PATHS).is_dir():
            # What is bound out of a volume goes before the volume, which is busy otherwise.
            cleanup.unmount_below(sub_paths)
        cleanup.remove_empty_dirs(folder)  # a driver that does not respond keeps only its own volumes
        return False
    cleanup.remove_tree(folder)
    return True
