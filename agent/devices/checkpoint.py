"""kubelet_internal_checkpoint: the devices of each container, and its plugin's answers for them."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from agent.managers import state_files
from agent.managers.list_checksum import ListChecksum
from agent.managers.state_files import StateError

log = logging.getLogger(__name__)

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
    pod_uid: str = msgspec.field(name="PodUID", default="")
    container_name: str = ""
    resource_name: str = ""
    device_ids: dict[int, list[str] | None] | None = msgspec.field(name="DeviceIDs", default=None)
    alloc_resp: str | None = None


class _Data(msgspec.Struct, rename="pascal"):
    """Null where an upstream kubelet had nothing to write."""

    pod_device_entries: list[_Entry] | None = msgspec.field(default_factory=list)
    registered_devices: dict[str, list[str] | None] | None = msgspec.field(default_factory=dict)


class _File(msgspec.Struct, rename="pascal"):
    data: _Data = msgspec.field(default_factory=_Data)
    checksum: int = 0


class CheckpointFile:
    """The file, as it is written again and again."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._sum = ListChecksum[Allocation](f"{_HEAD}[".encode(), b" ", lambda a: _printed(_entry(a)).encode())

    def save(self, allocations: Sequence[Allocation], registered: Mapping[str, Iterable[str]]) -> None:
        """Write everything. Raise OSError."""
        devices: dict[str, list[str] | None] = {resource: sorted(ids) for resource, ids in registered.items()}
        total = self._sum.of(allocations, f"]{_tail(devices)}".encode())
        file = _File(_Data([_entry(allocation) for allocation in allocations], devices), total)
        state_files.write(self._path, msgspec.to_builtins(file, str_keys=True))


def load(folder: Path) -> tuple[list[Allocation], dict[str, list[str]]] | None:
    """Read what the last agent wrote; None if it wrote nothing. Raise StateError."""
    found = state_files.read(folder / FILE)
    if found is None:
        return None
    try:
        file = msgspec.convert(found, _File, strict=False)
        state_files.check(file.checksum, _checksum(file.data))
    except (msgspec.ValidationError, ValueError) as error:
        raise StateError(str(error)) from error
    registered = file.data.registered_devices or {}
    return [_allocation(e) for e in file.data.pod_device_entries or []], {r: ids or [] for r, ids in registered.items()}


def restore(folder: Path) -> tuple[list[Allocation], dict[str, list[str]]] | None:
    """Read the last agent's checkpoint; a damaged file counts as empty and is replaced by the next (devicemanager: Start)."""
    try:
        return load(folder)
    except StateError as error:
        hint = "which devices pods have is not known: please drain this node"
        log.error("continue after failing to read checkpoint file %s: %s; %s", folder / FILE, error, hint)
        return [], {}


def _allocation(entry: _Entry) -> Allocation:
    by_node = {node: ids or [] for node, ids in (entry.device_ids or {}).items()}
    response = base64.b64decode(entry.alloc_resp or "")
    return Allocation(entry.pod_uid, entry.container_name, entry.resource_name, by_node, response)


def _entry(a: Allocation) -> _Entry:
    response = base64.b64encode(a.response).decode()
    return _Entry(a.uid, a.container, a.resource, {node: list(ids) for node, ids in a.by_node.items()}, response)


_HEAD = "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)"


def _checksum(data: _Data) -> int:
    entries = data.pod_device_entries
    printed = state_files.go_list(None if entries is None else [_printed(entry) for entry in entries])
    return state_files.checksum(_HEAD + printed + _tail(data.registered_devices))


def _tail(registered: Mapping[str, Sequence[str] | None] | None) -> str:
    return f" RegisteredDevices:(map[string][]string){_printed_lists(registered)}}}"


def _printed(entry: _Entry) -> str:
    response = None if entry.alloc_resp is None else list(base64.b64decode(entry.alloc_resp))
    return (
        f"{{PodUID:(string){entry.pod_uid} ContainerName:(string){entry.container_name} "
        f"ResourceName:(string){entry.resource_name} "
        f"DeviceIDs:(checkpoint.DevicesPerNUMA){_printed_lists(entry.device_ids)} "
        f"AllocResp:([]uint8){state_files.go_list(response)}}}"
    )


def _printed_lists(lists: Mapping[Any, Sequence[str] | None] | None) -> str:
    return state_files.go_map(None if lists is None else {key: state_files.go_list(ids) for key, ids in lists.items()})
