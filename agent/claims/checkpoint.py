"""dra_manager_state: which claims are ready on this node, for which pods, and which CDI devices they are."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from agent.managers import state_files
from agent.managers.state_files import StateError

FILE = "dra_manager_state"
_GROUP_VERSION = "checkpoint.dra.kubelet.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class ClaimDevice:
    """One device of a claim's; without requests it is for all of them."""

    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()


@dataclass(slots=True)
class ClaimInfo:
    """One claim on this node: its pods' UIDs, and what each driver made ready for it."""

    uid: str
    name: str
    namespace: str
    pods: set[str] = field(default_factory=set)
    drivers: dict[str, list[ClaimDevice]] = field(default_factory=dict)
    prepared: bool = False
    """Not written down: after a restart a claim is made ready once more where a pod starts."""


class _Device(msgspec.Struct):
    PoolName: str
    DeviceName: str
    RequestNames: list[str] | None
    CDIDeviceIDs: list[str] | None


class _Driver(msgspec.Struct):
    Devices: list[_Device] | None


class _Entry(msgspec.Struct):
    ClaimUID: str
    ClaimName: str
    Namespace: str
    PodUIDs: dict[str, dict[str, str]]
    DriverState: dict[str, _Driver]


class _Data(msgspec.Struct):
    kind: str
    apiVersion: str
    Entries: list[_Entry] | None


def encode(claims: Iterable[ClaimInfo]) -> dict[str, Any]:
    """Return the note of all claims."""
    data = msgspec.json.encode(_Data("DRACheckpoint", _GROUP_VERSION, [_entry(claim) for claim in claims]))
    return {"Data": data.decode(), "Checksum": zlib.crc32(data)}


def write(root: Path, content: Mapping[str, Any]) -> None:
    """Write what `encode` gave. Raise OSError."""
    state_files.write(root / FILE, content)


def load(root: Path) -> list[ClaimInfo]:
    """Read what the last agent wrote. Raise StateError."""
    found = state_files.read(root / FILE)
    if found is None:
        return []
    data = str(found.get("Data", "")).encode()
    if zlib.crc32(data) != found.get("Checksum"):
        raise StateError(f"{root / FILE}: checkpoint is corrupted")
    try:
        decoded = msgspec.json.decode(data, type=_Data)
    except msgspec.DecodeError as error:
        raise StateError(f"{root / FILE}: {error}") from error
    if (decoded.kind, decoded.apiVersion) != ("DRACheckpoint", _GROUP_VERSION):
        raise StateError(f"{root / FILE}: incorrect checkpoint type {decoded.apiVersion} {decoded.kind}")
    return [_claim(entry) for entry in decoded.Entries or []]


def _entry(claim: ClaimInfo) -> _Entry:
    drivers = {
        name: _Driver([_Device(d.pool, d.device, list(d.requests) or None, list(d.cdi) or None) for d in devices])
        for name, devices in claim.drivers.items()
    }
    return _Entry(claim.uid, claim.name, claim.namespace, {uid: {} for uid in sorted(claim.pods)}, drivers)


def _claim(entry: _Entry) -> ClaimInfo:
    drivers = {
        name: [
            ClaimDevice(d.PoolName, d.DeviceName, tuple(d.RequestNames or ()), tuple(d.CDIDeviceIDs or ()))
            for d in driver.Devices or []
        ]
        for name, driver in entry.DriverState.items()
    }
    return ClaimInfo(entry.ClaimUID, entry.ClaimName, entry.Namespace, set(entry.PodUIDs), drivers)
