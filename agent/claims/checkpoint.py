"""dra_manager_state: the claims that are prepared on this node, with their pods and CDI devices."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from agent.managers import state_files

FILE = "dra_manager_state"
_GROUP_VERSION = "checkpoint.dra.kubelet.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class ClaimDevice:
    """One device of a claim's; without requests it is for all of them."""

    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    share: str | None = None
    """The ID of the claim's part of a device that several share."""


@dataclass(slots=True)
class ClaimInfo:
    """One claim on this node: its pods' UIDs, and what each driver made ready for it."""

    uid: str
    name: str
    namespace: str
    pods: set[str] = field(default_factory=set)
    drivers: dict[str, list[ClaimDevice]] = field(default_factory=dict)
    prepared: bool = False
    """Not recorded: after a restart a claim is made ready once more where a pod starts."""
    allocated: frozenset[tuple[str, str, str]] | None = None
    """Driver, pool and device of the allocation that was made ready. Not recorded: None after a restart."""


class _Device(msgspec.Struct):
    PoolName: str
    DeviceName: str
    ShareID: str | None = None
    RequestNames: list[str] | None = None
    CDIDeviceIDs: list[str] | None = None


class _Driver(msgspec.Struct):
    Devices: list[_Device] | None = None


class _Entry(msgspec.Struct):
    ClaimUID: str
    ClaimName: str
    Namespace: str
    PodUIDs: dict[str, dict[str, str]] | None = None
    DriverState: dict[str, _Driver] | None = None


class _Data(msgspec.Struct):
    kind: str = ""
    apiVersion: str = ""
    ClaimInfoStateList: list[_Entry] | None = None


class _Found(_Data):
    Entries: list[_Entry] | None = None
    """The list's former name."""


def encode(claims: Iterable[ClaimInfo]) -> dict[str, Any]:
    """Return the checkpoint of all claims."""
    data = msgspec.json.encode(_Data("DRACheckpoint", _GROUP_VERSION, [_entry(claim) for claim in claims]))
    return {"Data": data.decode(), "Checksum": zlib.crc32(data)}


def write(root: Path, content: Mapping[str, Any]) -> None:
    """Write what `encode` gave. Raise OSError."""
    state_files.write(root / FILE, content)


def load(root: Path) -> list[ClaimInfo]:
    """Read what the last agent wrote. Raise StateError."""
    with state_files.restoring(root / FILE, "DRA manager"):
        found = state_files.read(root / FILE)
        if found is None:
            return []
        data = str(found.get("Data", "")).encode()
        state_files.check(found.get("Checksum"), zlib.crc32(data))
        decoded = msgspec.json.decode(data, type=_Found)
        return [_claim(entry) for entry in decoded.ClaimInfoStateList or decoded.Entries or []]


def _entry(claim: ClaimInfo) -> _Entry:
    drivers = {
        name: _Driver(
            [_Device(d.pool, d.device, d.share, list(d.requests) or None, list(d.cdi) or None) for d in devices]
        )
        for name, devices in claim.drivers.items()
    }
    return _Entry(claim.uid, claim.name, claim.namespace, {uid: {} for uid in sorted(claim.pods)}, drivers)


def _claim(entry: _Entry) -> ClaimInfo:
    drivers = {
        name: [
            ClaimDevice(d.PoolName, d.DeviceName, tuple(d.RequestNames or ()), tuple(d.CDIDeviceIDs or ()), d.ShareID)
            for d in driver.Devices or []
        ]
        for name, driver in (entry.DriverState or {}).items()
    }
    return ClaimInfo(entry.ClaimUID, entry.ClaimName, entry.Namespace, set(entry.PodUIDs or ()), drivers)
