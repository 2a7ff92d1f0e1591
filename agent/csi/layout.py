"""Paths of CSI volumes on the node, and volume data files, from which a restarted agent restores its state.

Paths and the files' keys are upstream's (pkg/volume/csi): each pod's volume has a directory with `vol_data.json` beside the
driver's mount, each staged volume one under the plugins directory. The file is written before the driver is called, so whatever
was begun can be undone, whichever process died in between. There is no other record: the pods that use a volume are read from
disk. Only a missing file means that nothing was begun; one that cannot be read, for the moment or for good, may mean any
volume.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.files.decoding import DamagedFileError, decode_json
from agent.volumes.csi_volume import PLUGIN, Volume
from kube.files import write_file

DATA_FILE = "vol_data.json"


@dataclass(frozen=True, slots=True)
class Published:
    """A volume that is published to a pod, or was requested to be, and the directory of its data file."""

    uid: str
    name: str
    driver: str
    handle: str
    target: Path
    data_file: Path
    block: bool
    ephemeral: bool
    attached: bool


@dataclass(frozen=True, slots=True)
class Staged:
    """A volume that is staged on the node, or was requested to be."""

    driver: str
    handle: str
    target: Path
    data_file: Path


class DamagedVolumeDataError(Exception):
    """A volume data file exists and does not name its volume."""


class Layout:
    """The folders below the agent's root."""

    def __init__(self, root: Path, pods: Path) -> None:
        self._pods, self._plugin = pods, root / "plugins" / "kubernetes.io" / "csi"

    # -- a pod's volume -----------------------------------------------------------------------------------------------
    def target(self, uid: str, volume: Volume) -> Path:
        """Return where the driver brings the volume for a pod."""
        if volume.block:
            return self._plugin / "volumeDevices" / "publish" / volume.name / uid
        return self._pods / uid / "volumes" / PLUGIN / volume.name / "mount"

    def device_link(self, uid: str, name: str) -> Path:
        """Return the link through which a pod's containers get a block volume."""
        return self._pods / uid / "volumeDevices" / PLUGIN / name

    def data_file_of(self, uid: str, volume: Volume) -> Path:
        if volume.block:
            # By pod, since each pod's is undone on its own.
            return self._plugin / "volumeDevices" / volume.name / "data" / f"{uid}.{DATA_FILE}"
        return self._pods / uid / "volumes" / PLUGIN / volume.name / DATA_FILE

    def write_pod_data(self, uid: str, volume: Volume, node: str, attachment: str) -> bool:
        """Write the data file of a pod's volume, and create the parent of the driver's mount; return whether it is new."""
        self.target(uid, volume).parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        data = {
            "specVolID": volume.name,
            "volumeHandle": volume.handle,
            "driverName": volume.driver,
            "nodeName": node,
            "attachmentID": attachment,
            "volumeLifecycleMode": "Ephemeral" if volume.ephemeral else "Persistent",
        }
        new = _write(self.data_file_of(uid, volume), data)
        if volume.block:
            link = self.device_link(uid, volume.name)
            link.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            with contextlib.suppress(FileExistsError):
                link.symlink_to(self.target(uid, volume))
        return new

    def published(self, uid: str) -> list[Published]:
        """List the volumes that were begun for a pod, without those of damaged files. Raise OSError."""
        found = []
        for data_file, target, block in self._pod_data_files(uid):
            with contextlib.suppress(DamagedVolumeDataError):
                found += _published(uid, data_file, target, block=block)
        return found

    def all_published(self) -> list[Published]:
        """List the volumes that were begun for any pod. Raise OSError and DamagedVolumeDataError: some are unknown then."""
        return [
            published
            for uid in _names_in(self._pods)
            for data_file, target, block in self._pod_data_files(uid)
            for published in _published(uid, data_file, target, block=block)
        ]

    def _pod_data_files(self, uid: str) -> Iterator[tuple[Path, Path, bool]]:
        """Yield the paths of a pod's data files, with the driver's target and whether it is a block device. Raise OSError."""
        volumes = self._pods / uid / "volumes" / PLUGIN
        for name in _names_in(volumes):
            yield volumes / name / DATA_FILE, volumes / name / "mount", False
        devices = self._plugin / "volumeDevices"
        for name in _names_in(self._pods / uid / "volumeDevices" / PLUGIN):
            yield devices / name / "data" / f"{uid}.{DATA_FILE}", devices / "publish" / name / uid, True

    def forget_published(self, published: Published) -> None:
        """Remove what is left of a pod's volume that the driver must release. Raise OSError if it is still mounted."""
        with contextlib.suppress(FileNotFoundError):
            if published.target.is_dir():
                published.target.rmdir()
            else:
                published.target.unlink()
        published.data_file.unlink(missing_ok=True)
        if published.block:
            self.device_link(published.uid, published.name).unlink(missing_ok=True)
            folders = [published.target.parent, published.data_file.parent, published.data_file.parent.parent]
        else:
            folders = [published.data_file.parent]
        _remove_empty(folders)

    # -- the node's place ---------------------------------------------------------------------------------------------
    def staging(self, volume: Volume) -> Path:
        """Return where the driver brings the volume for the node."""
        if volume.block:
            return self._plugin / "volumeDevices" / "staging" / volume.name
        return self._staging_folder(volume.driver, volume.handle) / "globalmount"

    def _staging_folder(self, driver: str, handle: str) -> Path:
        return self._plugin / driver / hashlib.sha256(handle.encode()).hexdigest()

    def write_staging_data(self, volume: Volume) -> bool:
        """Write the data file of a volume that is about to be staged, and create its staging directory.

        Return whether it is new. The volume may be mounted there and hang: Path.mkdir would have its file system describe an
        existing directory.
        """
        staging = self.staging(volume)
        staging.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        with contextlib.suppress(FileExistsError):
            os.mkdir(staging, 0o750)
        data_file = self._staging_folder(volume.driver, volume.handle) / DATA_FILE
        data = {"driverName": volume.driver, "volumeHandle": volume.handle}
        if volume.block:
            data["specVolID"] = volume.name
        return _write(data_file, data)

    def staged(self) -> list[Staged]:
        """List the volumes that were begun to be staged, without those of damaged files. Raise OSError."""
        found = []
        for driver in _names_in(self._plugin):
            for digest in _names_in(self._plugin / driver):
                with contextlib.suppress(DamagedVolumeDataError):
                    found += self._staged_in(self._plugin / driver / digest)
        return found

    def staged_volume(self, driver: str, handle: str) -> list[Staged]:
        """Return one volume where it was begun for the node. Raise OSError and DamagedVolumeDataError."""
        return self._staged_in(self._staging_folder(driver, handle))

    def _staged_in(self, folder: Path) -> list[Staged]:
        data = _read(folder / DATA_FILE)
        if data is None:
            return []
        target = folder / "globalmount"
        if name := data.get("specVolID"):
            target = self._plugin / "volumeDevices" / "staging" / name
        return [Staged(data.get("driverName", ""), data.get("volumeHandle", ""), target, folder / DATA_FILE)]

    def forget_staged(self, staged: Staged) -> None:
        """Remove what is left of a volume that the driver must release. Raise OSError if it is still mounted."""
        with contextlib.suppress(FileNotFoundError):
            staged.target.rmdir()
        staged.data_file.unlink(missing_ok=True)
        _remove_empty([staged.data_file.parent])


def _published(uid: str, data_file: Path, target: Path, *, block: bool) -> list[Published]:
    data = _read(data_file)
    if data is None:
        return []
    return [
        Published(
            uid=uid,
            name=data.get("specVolID", ""),
            driver=data.get("driverName", ""),
            handle=data.get("volumeHandle", ""),
            target=target,
            data_file=data_file,
            block=block,
            ephemeral=data.get("volumeLifecycleMode") == "Ephemeral",
            attached=bool(data.get("attachmentID")),
        )
    ]


def _write(data_file: Path, data: dict[str, str]) -> bool:
    """Write a volume data file, and return whether there was none."""
    data_file.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
    new = not data_file.exists()
    write_file(data_file, json.dumps(data).encode(), 0o600)
    return new


def _read(data_file: Path) -> dict[str, str] | None:
    """Read a volume data file; None if there is none. Raise OSError and DamagedVolumeDataError."""
    try:
        found = decode_json(data_file, object)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except DamagedFileError as error:
        raise DamagedVolumeDataError(f"{data_file}: {error}") from error
    if not isinstance(found, dict) or not found.get("driverName") or not found.get("volumeHandle"):
        raise DamagedVolumeDataError(f"{data_file}: it names no volume")
    return found


def _names_in(folder: Path) -> list[str]:
    """List a folder, empty where there is none. Raise OSError: glob would take what it cannot list for empty."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()
