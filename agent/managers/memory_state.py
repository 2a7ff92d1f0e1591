"""The file memory_manager_state: memory of each NUMA node, and the containers that it is allocated to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from agent.managers import state_files
from agent.managers.state_files import StateError

FILE = "memory_manager_state"


class _Base(msgspec.Struct, rename="camel", kw_only=True):
    pass


class Table(_Base):
    """One kind of memory (memory, hugepages-2Mi) of one node, in bytes."""

    total: int = 0
    system_reserved: int = 0
    allocatable: int = 0
    reserved: int = 0
    free: int = 0


class NUMANodeState(_Base):
    """One node; `cells` are the nodes that it is grouped with, itself among them."""

    number_of_assignments: int = 0
    memory_map: dict[str, Table] = msgspec.field(default_factory=dict)
    cells: list[int] = msgspec.field(default_factory=list)


class Block(_Base):
    """An allocation of one kind of memory to a container, from these nodes together."""

    numa_affinity: list[int] = msgspec.field(default_factory=list)
    type: str = ""
    size: int = 0


Entries = dict[str, dict[str, list[Block]]]
"""By pod UID and container."""


class MemoryState(_Base):
    """The whole state."""

    policy_name: str
    machine_state: dict[int, NUMANodeState] = msgspec.field(default_factory=dict)
    entries: Entries = msgspec.field(default_factory=dict)


def encode(state: MemoryState) -> dict[str, Any]:
    """Return the content of the file as the state is now."""
    content: dict[str, Any] = msgspec.to_builtins(state, str_keys=True)
    return content


def save(root: Path, state: MemoryState) -> None:
    """Write the state. Raise OSError."""
    write(root, encode(state))


def write(root: Path, content: Mapping[str, Any]) -> None:
    """Write what `encode` returned. Raise OSError."""
    given = checksum(content)
    kept = {key: value for key, value in content.items() if key != "entries" or value}
    state_files.write(root / FILE, {**kept, "checksum": given})


def load(root: Path, policy: str) -> MemoryState | None:
    """Read the state that the last agent left; None if there is none. Raise StateError."""
    with state_files.restoring(root / FILE, "memory manager"):
        found = state_files.read(root / FILE)
        return _restored(found, policy) if found is not None else None


def _restored(found: dict[str, Any], policy: str) -> MemoryState:
    state: MemoryState = msgspec.convert({"policyName": "", **_without_nulls(found)}, MemoryState, strict=False)
    if found.get("checksum"):  # the oldest files have none
        state_files.check(found["checksum"], checksum(found))
    if state.policy_name != policy:
        raise StateError(
            f'[memorymanager] configured policy "{policy}" differs from state checkpoint policy "{state.policy_name}"'
        )
    return state


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def checksum(content: Mapping[str, Any]) -> int:
    """Return the checksum of a file's content as upstream computes it; the content was decoded into the types."""
    go = state_files
    nodes, entries = content.get("machineState", {}), content.get("entries", {})
    printed = nodes and {int(node): _node(found) for node, found in nodes.items()}
    return go.checksum(
        f"(*state.MemoryManagerCheckpoint){{PolicyName:(string){content.get('policyName', '')} "
        f"MachineState:(state.NUMANodeMap){go.go_map(printed)} "
        f"Entries:(state.ContainerMemoryAssignments)"
        f"{go.go_map(entries and {uid: _pod(pod) for uid, pod in entries.items()})} Checksum:(checksum.Checksum)0}}"
    )


def _node(node: Mapping[str, Any] | None) -> str:
    if node is None:
        return state_files.NIL
    tables = node.get("memoryMap")
    return (
        f"<*>{{NumberOfAssignments:(int){node.get('numberOfAssignments', 0)} "
        f"MemoryMap:(map[v1.ResourceName]*state.MemoryTable)"
        f"{state_files.go_map(tables and {kind: _table(table) for kind, table in tables.items()})} "
        f"Cells:([]int){state_files.go_list(node.get('cells'))}}}"
    )


def _table(table: Mapping[str, int] | None) -> str:
    if table is None:
        return state_files.NIL
    names = ("total", "systemReserved", "allocatable", "reserved", "free")
    total, system, allocatable, reserved, free = (table.get(name, 0) for name in names)
    return (
        f"<*>{{TotalMemSize:(uint64){total} SystemReserved:(uint64){system} Allocatable:(uint64){allocatable} "
        f"Reserved:(uint64){reserved} Free:(uint64){free}}}"
    )


def _pod(pod: Mapping[str, Any] | None) -> str:
    go = state_files
    return go.go_map(pod and {name: go.go_list(blocks and [_block(b) for b in blocks]) for name, blocks in pod.items()})


def _block(block: Mapping[str, Any]) -> str:
    return (
        f"{{NUMAAffinity:([]int){state_files.go_list(block.get('numaAffinity'))} "
        f"Type:(v1.ResourceName){block.get('type', '')} Size:(uint64){block.get('size', 0)}}}"
    )
