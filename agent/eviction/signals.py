"""What is watched, and how it is read: the amounts that thresholds are compared with (kubelet/eviction/api)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.node.machine import available_memory
from agent.usage.machine import processes

CONDITIONS = {
    "memory.available": "MemoryPressure",
    "nodefs.available": "DiskPressure",
    "nodefs.inodesFree": "DiskPressure",
    "imagefs.available": "DiskPressure",
    "imagefs.inodesFree": "DiskPressure",
    "pid.available": "PIDPressure",
}
"""Signal to the node condition that it makes."""
RESOURCES = {
    "memory.available": "memory",
    "nodefs.available": "ephemeral-storage",
    "nodefs.inodesFree": "inodes",
    "imagefs.available": "ephemeral-storage",
    "imagefs.inodesFree": "inodes",
    "pid.available": "pids",
}
"""Signal to the resource that is short."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A signal's amount now, and of how much: bytes, inodes or processes."""

    available: int
    capacity: int


def reader(root_dir: Path, memory_capacity: int) -> Callable[[], Mapping[str, Reading]]:
    """Return a function that reads all signals; it blocks for system calls. Images share the agent's filesystem."""

    def read() -> Mapping[str, Reading]:
        disk = os.statvfs(root_dir)
        space = Reading(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)
        inodes = Reading(disk.f_favail, disk.f_files)
        running, most = processes()
        return {
            "memory.available": Reading(available_memory(), memory_capacity),
            "nodefs.available": space,
            "nodefs.inodesFree": inodes,
            "imagefs.available": space,
            "imagefs.inodesFree": inodes,
            "pid.available": Reading(most - running, most),
        }

    return read
