"""memory_manager_state: how much of each NUMA node's memory is promised to whom."""

from __future__ import annotations

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


class NodeState(_Base):
    """One node; `cells` are the nodes that it is grouped with, itself among them."""

    number_of_assignments: int = 0
    memory_map: dict[str, Table] = msgspec.field(default_factory=dict)
    cells: list[int] = msgspec.field(default_factory=list)


class Block(_Base):
    """What a container was promised of one kind, from these nodes together."""

    numa_affinity: list[int]
    type: str
    size: int


Entries = dict[str, dict[str, list[Block]]]
"""By pod UID and container."""


class MemoryState(_Base):
    """The whole state."""

    policy_name: str
    machine_state: dict[int, NodeState] = msgspec.field(default_factory=dict)
    entries: Entries = msgspec.field(default_factory=dict)


def save(root: Path, state: MemoryState) -> None:
    """Write the state. Raise OSError."""
    content: dict[str, Any] = msgspec.to_builtins(state, str_keys=True)
    if not state.entries:
        del content["entries"]
    state_files.write(root / FILE, {**content, "checksum": checksum(state)})


def load(root: Path, policy: str) -> MemoryState | None:
    """Read the state that the last agent left; None where there is none. Raise StateError."""
    found = state_files.read(root / FILE)
    if found is None:
        return None
    try:
        state = msgspec.convert({**found, "machineState": found.get("machineState") or {}}, MemoryState, strict=False)
    except msgspec.ValidationError as error:
        raise StateError(f"{root / FILE}: {error}") from error
    if found.get("checksum") and found["checksum"] != checksum(state):
        raise StateError(f"{root / FILE}: checkpoint is corrupted")
    if state.policy_name != policy:
        raise StateError(
            f'[memorymanager] configured policy "{policy}" differs from state checkpoint policy "{state.policy_name}"'
        )
    return state


def checksum(state: MemoryState) -> int:
    """Return the checksum as upstream computes it."""
    go = state_files
    nodes = {str(node): _node(found) for node, found in state.machine_state.items()}
    entries = {
        uid: go.go_map({name: go.go_list([_block(b) for b in blocks]) for name, blocks in pod.items()})
        for uid, pod in state.entries.items()
    }
    return go.checksum(
        f"(*state.MemoryManagerCheckpoint){{PolicyName:(string){state.policy_name} "
        f"MachineState:(state.NUMANodeMap){go.go_map(nodes)} "
        f"Entries:(state.ContainerMemoryAssignments){go.go_map(entries)} Checksum:(checksum.Checksum)0}}"
    )


def _node(node: NodeState) -> str:
    tables = {
        kind: f"<*>{{TotalMemSize:(uint64){t.total} SystemReserved:(uint64){t.system_reserved} "
        f"Allocatable:(uint64){t.allocatable} Reserved:(uint64){t.reserved} Free:(uint64){t.free}}}"
        for kind, t in node.memory_map.items()
    }
    return (
        f"<*>{{NumberOfAssignments:(int){node.number_of_assignments} "
        f"MemoryMap:(map[v1.ResourceName]*state.MemoryTable){state_files.go_map(tables)} "
        f"Cells:([]int){state_files.go_list(node.cells)}}}"
    )


def _block(block: Block) -> str:
    return (
        f"{{NUMAAffinity:([]int){state_files.go_list(block.numa_affinity)} "
        f"Type:(v1.ResourceName){block.type} Size:(uint64){block.size}}}"
    )
