"""Sets up volumes from the pod's spec alone: directories below the pod's, file systems in memory, and host paths."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent import null_bytes
from agent.volumes import atomic, cleanup, empty_dir, hostpath, mounts
from agent.volumes.mounted_volume import MountedVolume
from agent.volumes.payload import Sources, VolumeError, volume_payload
from kube.api import core_v1
from kube.quantity import value

_PLUGINS = {
    "config_map": "kubernetes.io~configmap",
    "secret": "kubernetes.io~secret",
    "downward_api": "kubernetes.io~downward-api",
    "projected": "kubernetes.io~projected",
    "empty_dir": cleanup.EMPTY_DIR,
}


class MountError(Exception):
    """A volume of the pod could not be set up; `volume` is its name."""

    def __init__(self, volume: str, message: str, step: str = "") -> None:
        super().__init__(f'{step or "MountVolume.SetUp"} failed for volume "{volume}" : {message}')
        self.volume = volume


class FolderError(Exception):
    """A pod's directory cannot be created."""


class PodVolumes:
    """Sets these volumes up for pods below `pods_dir`; one thread at a time has a pod."""

    def __init__(self, pods_dir: Path) -> None:
        self._pods_dir = pods_dir
        self._prepared: dict[str, set[Path]] = {}
        """By pod: volumes that this agent process has prepared."""

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._prepared.pop(uid, None)

    def set_up(
        self,
        pod: core_v1.Pod,
        volumes: Sequence[core_v1.Volume],
        sources: Sources,
        claims: Mapping[str, MountedVolume],
    ) -> tuple[dict[str, MountedVolume], list[MountError]]:
        """Set up volumes; return them by name, those of `claims` as they are, and which failed. Blocks. Raise FolderError."""
        folder = self._pods_dir / (pod.metadata.uid or "")
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o750)
        except OSError as error:
            raise FolderError(f"mkdir {error.filename}: {(error.strerror or '').lower()}") from error
        result: dict[str, MountedVolume] = {}
        failed, table = [], mounts.MountTable(folder)
        for volume in volumes:
            try:
                result[volume.name] = claims.get(volume.name) or self._set_up(
                    pod, volume, folder / "volumes", sources, table
                )
            except (VolumeError, atomic.PayloadError) as error:
                failed.append(MountError(volume.name, str(error)))
            except OSError as error:
                failed.append(MountError(volume.name, error_text(error)))
        return result, failed

    @null_bytes.as_os_error()
    def _set_up(
        self, pod: core_v1.Pod, volume: core_v1.Volume, folder: Path, sources: Sources, table: mounts.MountTable
    ) -> MountedVolume:
        group = pod.spec.security_context.fs_group if pod.spec.security_context else None
        prepared = self._prepared.setdefault(pod.metadata.uid or "", set())
        if volume.image is not None:
            return MountedVolume(Path("/"), read_only=True, image=volume.image)
        if volume.host_path is not None:
            return MountedVolume(hostpath.prepare(volume.host_path.path, volume.host_path.type or ""))
        for attribute, plugin in _PLUGINS.items():
            if getattr(volume, attribute) is None:
                continue
            target = folder / plugin / volume.name
            if volume.empty_dir is not None:
                if target not in prepared:
                    memory = value(sources.allocatable.get("memory", 0))
                    empty_dir.make(target, volume.empty_dir, pod, memory, table)
                    prepared.add(target)
                return MountedVolume(target)
            payload = volume_payload(pod, volume, sources)
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
            return MountedVolume(target, read_only=True)
        raise VolumeError("no volume plugin matched")


def error_text(error: OSError) -> str:
    """Return an error's message and file."""
    return f"{error.strerror}: {error.filename}" if error.filename is not None else error.strerror or str(error)
