"""kubelet_internal_checkpoint: which container has which devices, and what its plugin said to do for them."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agent.managers import state_files
from agent.managers.state_files import StateError

FILE = "kubelet_internal_checkpoint"


@dataclass(frozen=True, slots=True)
class Allocation:
    """A container's devices of one resource, by NUMA node; `response` is the plugin's answer as it came."""

    uid: str
    container: str
    resource: str
    by_node: Mapping[int, list[str]]
    response: bytes = b""

    @property
    def ids(self) -> list[str]:
        return sorted({name for names in self.by_node.values() for name in names})


class _Entry(msgspec.Struct, rename="pascal"):
    pod_uid: str = msgspec.field(name="PodUID")
    container_name: str
    resource_name: str
    device_ids: dict[int, list[str]] = msgspec.field(name="DeviceIDs")
    alloc_resp: str | None = ""


class _Data(msgspec.Struct, rename="pascal"):
    pod_device_entries: list[_Entry] | None
    registered_devices: dict[str, list[str]] | None


class _File(msgspec.Struct, rename="pascal"):
    data: _Data
    checksum: int = 0


def save(folder: Path, allocations: Iterable[Allocation], registered: Mapping[str, Iterable[str]]) -> None:
    """Write everything. Raise OSError."""
    entries = [
        _Entry(a.uid, a.container, a.resource, {k: list(v) for k, v in a.by_node.items()}, _base64(a.response))
        for a in allocations
    ]
    data = _Data(entries, {resource: sorted(ids) for resource, ids in registered.items()})
    content = msgspec.to_builtins(_File(data, _checksum(data)), str_keys=True)
    state_files.write(folder / FILE, content)


def load(folder: Path) -> tuple[list[Allocation], dict[str, list[str]]] | None:
    """Read what the last agent wrote; None where it wrote nothing. Raise StateError."""
    found = state_files.read(folder / FILE)
    if found is None:
        return None
    try:
        file = msgspec.convert(found, _File, strict=False)
        allocations = [
            Allocation(e.pod_uid, e.container_name, e.resource_name, e.device_ids, base64.b64decode(e.alloc_resp or ""))
            for e in file.data.pod_device_entries or []
        ]
    except (msgspec.ValidationError, ValueError) as error:
        raise StateError(f"{folder / FILE}: {error}") from error
    if file.checksum and file.checksum != _checksum(file.data):
        raise StateError(f"{folder / FILE}: checkpoint is corrupted")
    return allocations, file.data.registered_devices or {}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _checksum(data: _Data) -> int:
    go = state_files
    entries = [
        f"{{PodUID:(string){e.pod_uid} ContainerName:(string){e.container_name} ResourceName:(string){e.resource_name} "
        f"DeviceIDs:(checkpoint.DevicesPerNUMA){go.go_map({n: go.go_list(ids) for n, ids in e.device_ids.items()})} "
        f"AllocResp:([]uint8){go.go_list(list(base64.b64decode(e.alloc_resp or '')))}}}"
        for e in data.pod_device_entries or []
    ]
    registered = {name: go.go_list(ids) for name, ids in (data.registered_devices or {}).items()}
    return go.checksum(
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){go.go_list(entries)} "
        f"RegisteredDevices:(map[string][]string){go.go_map(registered)}}}"
    )
