"""Reads the usage of a cgroup and everything below it from the kernel: v1 and v2.

For what no runtime reports: all pods together, and a pod that is a slice under containerd 1.6. The working set is cadvisor's:
what is charged, less the file pages that the kernel reclaims first. Blocks for well under a millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent.usage.model import CPU, Memory


@dataclass(frozen=True, slots=True)
class GroupUse:
    """A cgroup's usage; `processes` includes threads, as the kernel counts them against pids.max."""

    cpu: CPU
    memory: Memory
    processes: int


def read(mount: Path, path: str, now: float) -> GroupUse | None:
    """Read a cgroup by its path below the mount; None if it is not there, or goes meanwhile."""
    try:
        return _v2(mount / path, now) if (mount / "cgroup.controllers").exists() else _v1(mount, path, now)
    except (OSError, ValueError):
        return None


def memory_of(mount: Path, path: str) -> Memory | None:
    """Read what a cgroup uses of memory; None if it is not there."""
    found = read(mount, path, 0.0)
    return found.memory if found is not None else None


def _v2(folder: Path, now: float) -> GroupUse:
    stat = _pairs(folder / "memory.stat")
    memory = _memory(
        now,
        usage=_number(folder / "memory.current"),
        inactive=stat["inactive_file"],
        rss=stat["anon"],
        faults=(stat["pgfault"], stat["pgmajfault"]),
        limit=_number(folder / "memory.max"),
    )
    cpu = CPU(now, _pairs(folder / "cpu.stat")["usage_usec"] * 1000)
    return GroupUse(cpu, memory, _number(folder / "pids.current"))


def _v1(mount: Path, path: str, now: float) -> GroupUse:
    folder = mount / "memory" / path
    stat = _pairs(folder / "memory.stat")
    limit = _number(folder / "memory.limit_in_bytes")
    memory = _memory(
        now,
        usage=_number(folder / "memory.usage_in_bytes"),
        inactive=stat["total_inactive_file"],
        rss=stat["total_rss"],
        faults=(stat["total_pgfault"], stat["total_pgmajfault"]),
        limit=0 if limit > 1 << 60 else limit,  # no limit is a number near 2^63
    )
    cpu = CPU(now, _number(mount / "cpuacct" / path / "cpuacct.usage"))
    return GroupUse(cpu, memory, _number(mount / "pids" / path / "pids.current"))


def _memory(now: float, *, usage: int, inactive: int, rss: int, faults: tuple[int, int], limit: int) -> Memory:
    working_set = max(usage - inactive, 0)
    return Memory(
        now,
        working_set,
        usage=usage,
        rss=rss,
        available=max(limit - working_set, 0) if limit else None,
        page_faults=faults[0],
        major_page_faults=faults[1],
    )


def _number(file: Path) -> int:
    """Read a file of one number; "max" is 0: no limit."""
    text = file.read_text().strip()
    return 0 if text == "max" else int(text)


def _pairs(file: Path) -> dict[str, int]:
    lines = (line.split() for line in file.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines}
