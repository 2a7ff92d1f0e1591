"""Sets up the volumes of pods.

`mount` brings all of a pod's volumes to what they have to be and may be called again at any time: after a ConfigMap
changed, when a token is due, when the agent restarts. It asks the API only for what is not cached, and does its file work
for all volumes in one hop to a thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent import threads
from agent.csi.layout import PLUGIN
from agent.podspec.environment import ConfigError, References
from agent.podspec.security import AnyContainer
from agent.usage.model import PersistentUse
from agent.volumes import atomic, cleanup, container_mounts, empty_dir, hostpath, mounts
from agent.volumes.mounted import Mounted
from agent.volumes.payload import Sources, VolumeError, lies_in_memory, single_user, volume_payload
from agent.volumes.persistent import PersistentVolumes, is_persistent
from agent.volumes.tokens import TokenCache
from agent.volumes.trust_bundles import TrustBundles
from cri.messages import Mount
from kube.api import core_v1
from kube.quantity import Quantity, value

_PLUGINS = {
    "config_map": "kubernetes.io~configmap",
    "secret": "kubernetes.io~secret",
    "downward_api": "kubernetes.io~downward-api",
    "projected": "kubernetes.io~projected",
    "empty_dir": "kubernetes.io~empty-dir",
}
BUNDLE_SECONDS = 60.0
MOST_IN_MEMORY = 1024
"""Volumes of a pod that are file systems in memory: whoever reads the kernel's list of mounts reads them all."""


class MountError(Exception):
    """A volume of the pod could not be set up; `volume` is its name."""

    def __init__(self, volume: str, message: str, step: str = "") -> None:
        super().__init__(f'{step or "MountVolume.SetUp"} failed for volume "{volume}" : {message}')
        self.volume = volume


class FolderError(Exception):
    """A pod's folder cannot be made; the message says why."""


class MountsFailed(Exception):
    """Volumes of the pod could not be set up; `failed` says of each why. The others are set up."""

    def __init__(self, failed: Sequence[MountError]) -> None:
        super().__init__("; ".join(map(str, failed)))
        self.failed = tuple(failed)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What setting up volumes in a thread needs, gathered before."""

    sources: Sources
    claims: Mapping[str, Mounted]


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
        self._prepared: dict[str, set[Path]] = {}
        """Volumes whose folder and mount were seen to in this agent's life, by pod: one thread at a time has a pod."""
        self._owners: dict[str, threads.Owner] = {}

    def pod_dir(self, uid: str) -> Path:
        return self._pods_dir / uid

    async def mount(self, pod: core_v1.Pod, pod_ips: tuple[str, ...] = ()) -> tuple[dict[str, Mounted], float | None]:
        """Set up every volume; return them by name, and when to call again for a token. Raise MountsFailed."""
        tokens: dict[tuple[str, str], str] = {}
        bundles: dict[tuple[str, str], str] = {}
        claims: dict[str, Mounted] = {}
        failed: list[MountError] = []
        unready: set[str] = set()
        again: float | None = None
        for volume in pod.spec.volumes:
            try:
                for source in volume.projected.sources if volume.projected else ():
                    if source.service_account_token is not None:
                        token = await self._tokens.get(pod, source.service_account_token)
                        tokens[volume.name, source.service_account_token.path] = token.text
                        again = min(again or token.renew_at, token.renew_at)
                    if source.cluster_trust_bundle is not None:
                        text = await self._bundles.read(source.cluster_trust_bundle)
                        # Bundles are not followed: a pod that shows one looks again once a minute.
                        look_at = self._tokens.now() + BUNDLE_SECONDS
                        again = min(again or look_at, look_at)
                        if text is not None:
                            bundles[volume.name, source.cluster_trust_bundle.path] = text
                if is_persistent(volume):
                    claims[volume.name], look = await self._persistent.set_up(pod, volume)
                    again = min(again or look, look) if look is not None else again
            except VolumeError as error:
                failed.append(MountError(error.name or volume.name, str(error), error.step))
                unready.add(volume.name)
            except OSError as error:
                failed.append(MountError(volume.name, _words(error)))
                unready.add(volume.name)
        sources = Sources(
            references=self._references,
            allocatable=self._allocatable(),
            host_ips=self._host_ips(),
            pod_ips=pod_ips,
            tokens=tokens,
            bundles=bundles,
            token_uid=single_user(pod),
        )
        ready = [volume for volume in pod.spec.volumes if volume.name not in unready]
        owner = self._owners[pod.metadata.uid or ""] = threads.Owner.of(pod)
        try:
            facts = _Facts(sources, claims)
            mounted, wrong = await threads.call(owner.pod, self._set_up_all, pod, ready, facts, owner=owner)
        except OSError as error:  # too many calls hang
            if not ready:
                raise FolderError(_words(error)) from error
            raise MountsFailed([*failed, MountError(ready[0].name, _words(error))]) from error
        if failed or wrong:
            raise MountsFailed(failed + wrong)
        return mounted, again

    def _set_up_all(
        self, pod: core_v1.Pod, volumes: Sequence[core_v1.Volume], facts: _Facts
    ) -> tuple[dict[str, Mounted], list[MountError]]:
        folder = self.pod_dir(pod.metadata.uid or "")
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o750)
        except OSError as error:
            raise FolderError(f"mkdir {error.filename}: {(error.strerror or '').lower()}") from error
        in_memory = sum(map(lies_in_memory, pod.spec.volumes))
        if in_memory > MOST_IN_MEMORY:
            problem = f"the pod has {in_memory} volumes in memory, {MOST_IN_MEMORY} are allowed"
            return {}, [MountError(volumes[0].name, problem)] if volumes else []
        result: dict[str, Mounted] = {}
        failed, table = [], mounts.MountTable(folder)
        for volume in volumes:
            try:
                result[volume.name] = self._set_up(pod, volume, folder / "volumes", facts, table)
            except (VolumeError, atomic.PayloadError) as error:
                failed.append(MountError(volume.name, str(error)))
            except OSError as error:
                failed.append(MountError(volume.name, _words(error)))
        return result, failed

    def _set_up(
        self, pod: core_v1.Pod, volume: core_v1.Volume, folder: Path, facts: _Facts, table: mounts.MountTable
    ) -> Mounted:
        group = pod.spec.security_context.fs_group if pod.spec.security_context else None
        prepared = self._prepared.setdefault(pod.metadata.uid or "", set())
        if volume.name in facts.claims:
            return facts.claims[volume.name]
        if volume.image is not None:
            return Mounted(Path("/"), read_only=True, image=volume.image)
        if volume.host_path is not None:
            return Mounted(hostpath.prepare(volume.host_path.path, volume.host_path.type or ""))
        for attribute, plugin in _PLUGINS.items():
            if getattr(volume, attribute) is None:
                continue
            target = folder / plugin / volume.name
            if volume.empty_dir is not None:
                if target not in prepared:
                    memory = value(facts.sources.allocatable.get("memory", 0))
                    empty_dir.make(target, volume.empty_dir, pod, memory, table)
                    prepared.add(target)
                return Mounted(target)
            payload = volume_payload(pod, volume, facts.sources)
            if target not in prepared:
                fresh = not target.is_dir()
                target.mkdir(parents=True, exist_ok=True)
                # What is secret must not reach a disk; after a reboot the folder is there and its mount is not.
                if attribute != "config_map" and (fresh or not table.has(target)):
                    mounts.mount_tmpfs(target, mode=0o755)
                prepared.add(target)
            atomic.write(target, payload, group)
            if group is not None:
                os.chown(target, -1, group)
                target.chmod(0o2775)
            return Mounted(target, read_only=True)
        raise VolumeError("no volume plugin matched")

    # -- what containers mount ----------------------------------------------------------------------------------------
    async def container_mounts(
        self, pod: core_v1.Pod, container: AnyContainer, mounted: Mapping[str, Mounted], env: Mapping[str, str]
    ) -> list[Mount]:
        """Return the container's volume mounts, subPaths bound. Raise ConfigError."""
        make = container_mounts.ContainerMounts(
            self.pod_dir(pod.metadata.uid or ""), container, recursive_read_only=self._recursive_read_only(pod)
        )
        if any(mount.sub_path or mount.sub_path_expr for mount in container.volume_mounts):
            owner = threads.Owner.of(pod)
            try:
                return await threads.call(owner.pod, make.mounts, mounted, env, owner=owner)
            except OSError as error:
                raise ConfigError(f"failed to prepare subPath: {_words(error)}") from error
        return make.mounts(mounted, env)

    # -- the end ------------------------------------------------------------------------------------------------------
    async def clean(self, uid: str) -> None:
        """Unmount and delete everything of a pod. Raise CleanupError while something stays mounted."""
        folder, owner = self.pod_dir(uid), self._owners.get(uid)
        done = await threads.call(uid, _take_down, folder, owner=owner)
        if not done or self._persistent.begun(uid):
            await self._persistent.release(uid)
        if not done:
            await threads.call(uid, cleanup.remove_tree, folder, owner=owner)
        self._persistent.forget(uid)
        self._prepared.pop(uid, None)
        self._owners.pop(uid, None)
        self._tokens.forget(uid)

    async def persistent_use(self, pod: core_v1.Pod) -> tuple[PersistentUse, ...]:
        """Say how full those of a pod's volumes are that are not its own."""
        return await self._persistent.figures(pod)

    async def sweep(self) -> None:
        """Take off the node what no pod uses."""
        await self._persistent.sweep()

    def orphans(self, known: set[str]) -> list[str]:
        """List pods that have a folder but are not known."""
        return cleanup.orphans(self._pods_dir, known)


def _words(error: OSError) -> str:
    return f"{error.strerror}: {error.filename}" if error.filename is not None else error.strerror or str(error)


def _take_down(folder: Path) -> bool:
    """Unmount and delete what a pod has; False where drivers have to let go of something first. Raise CleanupError."""
    sub_paths = folder / "volume-subpaths"
    if sub_paths.is_dir():
        # What is bound out of a volume goes before the volume, which is busy otherwise.
        cleanup.unmount_below(sub_paths)
    if any((folder / kind / PLUGIN).is_dir() for kind in ("volumes", "volumeDevices")):
        return False
    cleanup.remove_tree(folder)
    return True
