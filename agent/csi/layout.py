"""Where CSI volumes are on the node, and the notes beside them from which everything is known again after a restart.

Paths and the notes' keys are upstream's (pkg/volume/csi): each pod's volume has a folder with `vol_data.json` beside the
driver's mount, each staged volume one under the plugins folder. A note is written before the driver is called, so whatever
was begun can be undone, whoever died in between. There is no other record: which pods use a volume is read from disk. Only a
note that is not there means that nothing was begun; one that cannot be read, for the moment or for good, may mean any volume.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.csi.volume import Volume
from kube.files import write_file

NOTE = "vol_data.json"
PLUGIN = "kubernetes.io~csi"


@dataclass(frozen=True, slots=True)
class Published:
    """A pod's volume: where the driver was told to bring it, and the note's folder."""

    uid: str
    name: str
    driver: str
    handle: str
    target: Path
    note: Path
    block: bool
    ephemeral: bool
    attached: bool


@dataclass(frozen=True, slots=True)
class Staged:
    """A volume that the driver was told to bring to the node."""

    driver: str
    handle: str
    target: Path
    note: Path


class DamagedNoteError(Exception):
    """A note is there and does not say what it is about."""


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

    def note_of(self, uid: str, volume: Volume) -> Path:
        if volume.block:
            # By pod, since each pod's is undone on its own.
            return self._plugin / "volumeDevices" / volume.name / "data" / f"{uid}.{NOTE}"
        return self._pods / uid / "volumes" / PLUGIN / volume.name / NOTE

    def write_pod_note(self, uid: str, volume: Volume, node: str, attachment: str) -> None:
        """Note a pod's volume, and make the folder that the driver's mount goes into."""
        self.target(uid, volume).parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        note = {
            "specVolID": volume.name,
            "volumeHandle": volume.handle,
            "driverName": volume.driver,
            "nodeName": node,
            "attachmentID": attachment,
            "volumeLifecycleMode": "Ephemeral" if volume.ephemeral else "Persistent",
        }
        _write(self.note_of(uid, volume), note)
        if volume.block:
            link = self.device_link(uid, volume.name)
            link.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            with contextlib.suppress(FileExistsError):
                link.symlink_to(self.target(uid, volume))

    def published(self, uid: str) -> list[Published]:
        """List what was begun for a pod; damaged notes name nothing and are left alone. Raise OSError."""
        found = []
        for note, target, block in self._pod_notes(uid):
            with contextlib.suppress(DamagedNoteError):
                found += _published(uid, note, target, block=block)
        return found

    def all_published(self) -> list[Published]:
        """List what was begun for any pod on the node. Raise OSError and DamagedNoteError, since then not all is known."""
        return [
            published
            for uid in _names_in(self._pods)
            for note, target, block in self._pod_notes(uid)
            for published in _published(uid, note, target, block=block)
        ]

    def _pod_notes(self, uid: str) -> Iterator[tuple[Path, Path, bool]]:
        """Yield where a pod's notes may be, with the driver's target and whether it is a block device. Raise OSError."""
        volumes = self._pods / uid / "volumes" / PLUGIN
        for name in _names_in(volumes):
            yield volumes / name / NOTE, volumes / name / "mount", False
        devices = self._plugin / "volumeDevices"
        for name in _names_in(self._pods / uid / "volumeDevices" / PLUGIN):
            yield devices / name / "data" / f"{uid}.{NOTE}", devices / "publish" / name / uid, True

    def forget_published(self, published: Published) -> None:
        """Remove what is left of a pod's volume that the driver has let go of. Raise OSError where it is still mounted."""
        with contextlib.suppress(FileNotFoundError):
            if published.target.is_dir():
                published.target.rmdir()
            else:
                published.target.unlink()
        published.note.unlink(missing_ok=True)
        if published.block:
            self.device_link(published.uid, published.name).unlink(missing_ok=True)
            folders = [published.target.parent, published.note.parent, published.note.parent.parent]
        else:
            folders = [published.note.parent]
        _remove_empty(folders)

    # -- the node's place ---------------------------------------------------------------------------------------------
    def staging(self, volume: Volume) -> Path:
        """Return where the driver brings the volume for the node."""
        if volume.block:
            return self._plugin / "volumeDevices" / "staging" / volume.name
        return self._staging_folder(volume.driver, volume.handle) / "globalmount"

    def _staging_folder(self, driver: str, handle: str) -> Path:
        return self._plugin / driver / hashlib.sha256(handle.encode()).hexdigest()

    def write_staging_note(self, volume: Volume) -> None:
        """Note a volume that is about to be staged, and make its place."""
        self.staging(volume).mkdir(parents=True, exist_ok=True, mode=0o750)
        note = self._staging_folder(volume.driver, volume.handle) / NOTE
        data = {"driverName": volume.driver, "volumeHandle": volume.handle}
        if volume.block:
            data["specVolID"] = volume.name
        _write(note, data)

    def staged(self) -> list[Staged]:
        """List what was begun for the node; damaged notes name nothing and are left alone. Raise OSError."""
        found = []
        for driver in _names_in(self._plugin):
            for digest in _names_in(self._plugin / driver):
                with contextlib.suppress(DamagedNoteError):
                    found += self._staged_in(self._plugin / driver / digest)
        return found

    def staged_volume(self, driver: str, handle: str) -> list[Staged]:
        """Return one volume where it was begun for the node. Raise OSError and DamagedNoteError."""
        return self._staged_in(self._staging_folder(driver, handle))

    def _staged_in(self, folder: Path) -> list[Staged]:
        data = _read(folder / NOTE)
        if data is None:
            return []
        target = folder / "globalmount"
        if name := data.get("specVolID"):
            target = self._plugin / "volumeDevices" / "staging" / name
        return [Staged(data.get("driverName", ""), data.get("volumeHandle", ""), target, folder / NOTE)]

    def forget_staged(self, staged: Staged) -> None:
        """Remove what is left of a volume that the driver has let go of. Raise OSError where it is still mounted."""
        with contextlib.suppress(FileNotFoundError):
            staged.target.rmdir()
        staged.note.unlink(missing_ok=True)
        _remove_empty([staged.note.parent])


def _published(uid: str, note: Path, target: Path, *, block: bool) -> list[Published]:
    data = _read(note)
    if data is None:
        return []
    return [
        Published(
            uid=uid,
            name=data.get("specVolID", ""),
            driver=data.get("driverName", ""),
            handle=data.get("volumeHandle", ""),
            target=target,
            note=note,
            block=block,
            ephemeral=data.get("volumeLifecycleMode") == "Ephemeral",
            attached=bool(data.get("attachmentID")),
        )
    ]


def _write(note: Path, data: dict[str, str]) -> None:
    note.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
    write_file(note, json.dumps(data).encode(), 0o600)


def _read(note: Path) -> dict[str, str] | None:
    """Read a note; None where there is none. Raise OSError and DamagedNoteError."""
    try:
        found = json.loads(note.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise DamagedNoteError(f"{note}: {error}") from error
    if not isinstance(found, dict) or not found.get("driverName") or not found.get("volumeHandle"):
        raise DamagedNoteError(f"{note}: it names no volume")
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
