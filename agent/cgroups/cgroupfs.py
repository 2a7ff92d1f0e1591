"""Creates, limits and removes cgroups through the kernel's file system, v1 and v2.

On v1 every controller has its own hierarchy: values are set in cpu, memory and pids, and a cgroup is removed from all
hierarchies, because runc creates the same path in each. rmdir removes a cgroup, and only if it contains no process.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from agent.cgroups import qos

log = logging.getLogger(__name__)

MOUNT = Path("/sys/fs/cgroup")
UNLIMITED = 1 << 62
"""Limits of memory from here on are none: v1 prints the largest number of pages."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a cgroup; 0 is no limit. CPU time in microseconds a period, memory in bytes."""

    cpu_shares: int = 0
    cpu_quota: int = 0
    cpu_period: int = 100_000
    memory: int = 0
    pids: int = 0

    def covering(self, other: Limits) -> Limits:
        """Return these limits with no less CPU time and memory than another cgroup's have."""
        quota = other.cpu_quota * self.cpu_period // other.cpu_period
        return replace(
            self,
            cpu_quota=max(self.cpu_quota, quota) if self.cpu_quota and quota else 0,
            memory=max(self.memory, other.memory) if self.memory and other.memory else 0,
        )


def is_v2(mount: Path = MOUNT) -> bool:
    """Return whether the unified hierarchy is the one in use."""
    return (mount / "cgroup.controllers").exists()


class CgroupFS:
    """The cgroups below a mount; paths are relative to it. Every call takes well under a millisecond."""

    def __init__(self, mount: Path = MOUNT) -> None:
        self.mount = mount
        self.v2 = is_v2(mount)
        self.trees = [mount] if self.v2 else _controllers(mount)
        self.swap = self.v2 and any(mount.glob("*/memory.swap.max"))
        """The memory controller bounds swap by itself."""

    def ensure(self, path: str, limits: Limits, *, strict: bool = False) -> None:
        """Create a cgroup if it does not exist and set its limits; raise OSError for one that is refused if `strict`."""
        if self.v2:
            self._ensure_v2(path, limits, strict=strict)
        else:
            self._ensure_v1(path, limits, strict=strict)

    def read(self, path: str) -> Limits:
        """Return a cgroup's limits of CPU time and memory; none of one that does not exist. Its shares are not read."""
        if self.v2:
            folder = self.mount / path
            quota, _, period = _read(folder / "cpu.max", "max 100000").partition(" ")
            memory = _read(folder / "memory.max", "max")
        else:
            folder = self.mount / "cpu" / path
            quota, period = _read(folder / "cpu.cfs_quota_us", "-1"), _read(folder / "cpu.cfs_period_us", "100000")
            memory = _read(self.mount / "memory" / path / "memory.limit_in_bytes", "-1")
        return Limits(cpu_quota=_limit(quota), cpu_period=int(period or 100_000), memory=_limit(memory))

    def memory_used(self, path: str) -> int:
        """Return the memory that the processes of a cgroup use, in bytes; 0 if it does not exist."""
        folder = self.mount / path if self.v2 else self.mount / "memory" / path
        return int(_read(folder / ("memory.current" if self.v2 else "memory.usage_in_bytes"), "0"))

    def limit_huge_pages(self, path: str, request: Callable[[str], int]) -> None:
        """Limit a cgroup to the huge pages that `request` returns by resource name."""
        folder = (self.mount if self.v2 else self.mount / "hugetlb") / path
        if not self.v2 and (self.mount / "hugetlb").is_dir():
            folder.mkdir(parents=True, exist_ok=True)
        for file in folder.glob("hugetlb.*B.max" if self.v2 else "hugetlb.*B.limit_in_bytes"):
            size = file.name.split(".")[1].removesuffix("B")
            if not size.startswith("rsvd"):
                _write(file, request(f"hugepages-{size}i"))

    def require(self, path: str) -> None:
        """Raise FileNotFoundError if a cgroup does not exist in every controller that limits need."""
        for tree in self._limiting():
            if tree.is_dir() and not (tree / path).is_dir():
                raise FileNotFoundError(str(tree / path))

    def limit(self, path: str, limits: Limits) -> None:
        """Set the given limits on an existing cgroup; the others are kept."""
        controllers = self._limiting()
        for tree, given, file, text in (
            (controllers[0], limits.cpu_shares, "cpu.weight" if self.v2 else "cpu.shares", qos.cpu_weight),
            (
                controllers[-2 % len(controllers)],
                limits.memory,
                "memory.max" if self.v2 else "memory.limit_in_bytes",
                int,
            ),
            (controllers[-1], limits.pids, "pids.max", int),
        ):
            if given and tree.is_dir():
                _write(tree / path / file, text(given) if self.v2 else given)

    def _limiting(self) -> list[Path]:
        return [self.mount] if self.v2 else [self.mount / part for part in ("cpu", "memory", "pids")]

    def remove(self, path: str) -> bool:
        """Remove a cgroup and its children and kill their processes; return False if the kernel reports it busy."""
        gone = True
        for tree in self.trees:
            gone &= _remove_tree(tree / path)
        return gone

    def _ensure_v1(self, path: str, limits: Limits, *, strict: bool) -> None:
        wanted = {
            "cpu": [
                ("cpu.shares", limits.cpu_shares or qos.MIN_SHARES),
                ("cpu.cfs_period_us", limits.cpu_period if limits.cpu_quota else None),
                ("cpu.cfs_quota_us", limits.cpu_quota or None),
            ],
            "memory": [("memory.limit_in_bytes", limits.memory or None)],
            "pids": [("pids.max", limits.pids or None)],
        }
        for controller, values in wanted.items():
            folder = self.mount / controller / path
            if not (self.mount / controller).is_dir():
                continue
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                if controller == "memory":
                    _write(folder / "memory.use_hierarchy", 1, quiet=True)
            for file, value in values:
                if value is not None:
                    _write(folder / file, value, strict=strict)

    def _ensure_v2(self, path: str, limits: Limits, *, strict: bool) -> None:
        folder = self.mount
        for part in path.split("/"):
            _enable_controllers(folder)
            folder = folder / part
            folder.mkdir(exist_ok=True)
        _enable_controllers(folder)
        _write(folder / "cpu.weight", qos.cpu_weight(limits.cpu_shares or qos.MIN_SHARES), quiet=True)
        if limits.cpu_quota:
            _write(folder / "cpu.max", f"{limits.cpu_quota} {limits.cpu_period}", strict=strict)
        if limits.memory:
            _write(folder / "memory.max", limits.memory, strict=strict)
        if limits.pids:
            _write(folder / "pids.max", limits.pids)


def _controllers(mount: Path) -> list[Path]:
    """List the v1 hierarchies, each once: cpu and cpuacct may be two names of one."""
    seen: dict[tuple[int, int], Path] = {}
    if mount.is_dir():
        for folder in sorted(mount.iterdir()):
            if folder.is_dir() and not folder.is_symlink() and (folder / "cgroup.procs").exists():
                stat = folder.stat()
                seen.setdefault((stat.st_dev, stat.st_ino), folder)
    return list(seen.values())


def _enable_controllers(folder: Path) -> None:
    with contextlib.suppress(OSError):
        available = (folder / "cgroup.controllers").read_text().split()
        enabled = (folder / "cgroup.subtree_control").read_text().split()
        for controller in available:
            if controller not in enabled:
                _write(folder / "cgroup.subtree_control", f"+{controller}", quiet=True)


def _read(file: Path, default: str) -> str:
    """Read a file's only value; the default if it does not exist."""
    try:
        return file.read_text().strip()
    except OSError:
        return default


def _limit(text: str) -> int:
    """Read a limit; 0 is no limit."""
    number = 0 if text == "max" else int(text)
    return number if 0 < number < UNLIMITED else 0


def _write(file: Path, value: int | str, *, quiet: bool = False, strict: bool = False) -> None:
    try:
        file.write_text(str(value))
    except OSError as error:
        if strict:
            raise
        if not quiet:
            log.warning("cgroup: writing %s to %s: %s", value, file, error.strerror)


def _remove_tree(folder: Path) -> bool:
    """Remove bottom-up with rmdir: the kernel removes a cgroup's files with it, and it has no others."""
    gone = True
    try:
        for below in [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]:
            gone &= _remove_tree(below)
    except (FileNotFoundError, NotADirectoryError):
        return True  # the runtime was quicker
    try:
        folder.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != errno.EBUSY:
            log.warning("cgroup: removing %s: %s", folder, error.strerror)
        _kill_all(folder)
        return False
    return gone


def _kill_all(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for pid in (folder / "cgroup.procs").read_text().split():
            if int(pid) > 1:  # 0 is a process of another PID namespace
                os.kill(int(pid), signal.SIGKILL)
