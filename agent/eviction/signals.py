"""Eviction signals: the amounts that thresholds are compared with, and how they are read (kubelet/eviction/api)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.usage.machine import memory, processes
from agent.usage.model import Memory

CONDITIONS = {
    "memory.available": "MemoryPressure",
    "allocatableMemory.available": "MemoryPressure",
    "nodefs.available": "DiskPressure",
    "nodefs.inodesFree": "DiskPressure",
    "imagefs.available": "DiskPressure",
    "imagefs.inodesFree": "DiskPressure",
    "pid.available": "PIDPressure",
}
"""Signal to the node condition that it makes."""
RESOURCES = {
    "memory.available": "memory",
    "allocatableMemory.available": "memory",
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


def reader(
    root_dir: Path, memory_capacity: int, pods: Callable[[], Memory | None], images: Callable[[], Path]
) -> Callable[[], Mapping[str, Reading]]:
    """Return a function that reads all signals; it blocks for system calls. `images` returns the folder of images.

    `pods` returns the usage of all pods together and what is left of their limit, which may be less than the machine's memory.
    """

    def read() -> Mapping[str, Reading]:
        running, most = processes()
        together = pods()
        of_pods = {}
        if together is not None and together.available is not None:
            capacity = together.available + together.working_set
            of_pods["allocatableMemory.available"] = Reading(together.available, capacity)
        return of_pods | {
            "memory.available": Reading(memory(0.0).available or 0, memory_capacity),
            **_disk("nodefs", root_dir),
            **_disk("imagefs", images()),
            "pid.available": Reading(most - running, most),
        }

    return read


def _disk(name: str, folder: Path) -> dict[str, Reading]:
    found = os.statvfs(folder)
    return {
        f"{name}.available": Reading(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize),
        f"{name}.inodesFree": Reading(found.f_favail, found.f_files),
    }
