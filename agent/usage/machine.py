"""The machine's own figures, from /proc and statvfs. All functions block for well under a millisecond, but `disk_use`."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from agent.usage.model import CPU, Filesystem, Interface, Memory

_PROC = Path("/proc")
_TICK_NANOSECONDS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def cpu(now: float, proc: Path = _PROC) -> CPU:
    """Read the time that all cores have worked: everything but idle and waiting for disks."""
    words = (proc / "stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(word) for word in words[1:9])
    return CPU(now, (user + nice + system + irq + softirq + steal) * _TICK_NANOSECONDS)


def memory(now: float, proc: Path = _PROC) -> Memory:
    """Read memory in use as cadvisor counts it for the root cgroup, v1 and v2 alike: processes' own pages and all of files.

    What the kernel can drop at once (inactive file pages) is not in the working set; its own memory is in neither.
    """
    values = {}
    for line in (proc / "meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        values[name] = int(rest.split()[0]) * 1024
    usage = sum(values.get(name, 0) for name in ("AnonPages", "Cached", "Buffers", "SwapCached"))
    working_set = max(0, usage - values.get("Inactive(file)", 0))
    faults = _vmstat(proc)
    return Memory(
        now,
        working_set,
        usage=usage,
        rss=values.get("AnonPages", 0),
        available=values["MemTotal"] - working_set,
        page_faults=faults.get("pgfault", 0),
        major_page_faults=faults.get("pgmajfault", 0),
    )


def interfaces(proc: Path = _PROC) -> tuple[Interface, ...]:
    """Read the counters of every interface but loopback, that of the default route first."""
    found = []
    for line in (proc / "net/dev").read_text().splitlines()[2:]:
        name, _, rest = line.partition(":")
        numbers = [int(word) for word in rest.split()]
        if name.strip() != "lo":
            found.append(Interface(name.strip(), numbers[0], numbers[2], numbers[8], numbers[10]))
    default = _default_interface(proc)
    return tuple(sorted(found, key=lambda interface: (interface.name != default, interface.name)))


def filesystem(now: float, path: Path, used: int | None = None, inodes_used: int | None = None) -> Filesystem:
    """Read the file system that holds a path; `used` where less than all of it is meant."""
    stat = os.statvfs(path)
    capacity, free = stat.f_blocks * stat.f_frsize, stat.f_bfree * stat.f_frsize
    return Filesystem(
        now,
        capacity=capacity,
        available=stat.f_bavail * stat.f_frsize,
        used=capacity - free if used is None else used,
        inodes=stat.f_files,
        inodes_free=stat.f_ffree,
        inodes_used=stat.f_files - stat.f_ffree if inodes_used is None else inodes_used,
    )


def processes(proc: Path = _PROC) -> tuple[int, int]:
    """Return how many tasks there are and how many there may be."""
    tasks = int((proc / "loadavg").read_text().split()[3].partition("/")[2])
    limits = [int((proc / name).read_text()) for name in ("sys/kernel/pid_max", "sys/kernel/threads-max")]
    return tasks, min(limits)


def boot_time(proc: Path = _PROC) -> float:
    """Return when the machine was started."""
    for line in (proc / "stat").read_text().splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return 0.0


def disk_use(path: Path) -> tuple[int, int]:
    """Add up a directory: bytes allocated and inodes, following no links and staying on its file system."""
    try:
        top = path.lstat()
    except OSError:
        return 0, 0
    size, inodes = top.st_blocks * 512, 1
    waiting = [path] if path.is_dir() and not path.is_symlink() else []
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                try:
                    stat = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.st_dev != top.st_dev:
                    continue
                size, inodes = size + stat.st_blocks * 512, inodes + 1
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
    return size, inodes


def _vmstat(proc: Path) -> dict[str, int]:
    pairs = (line.split() for line in (proc / "vmstat").read_text().splitlines())
    return {name: int(value) for name, value in pairs if name in ("pgfault", "pgmajfault")}


def _default_interface(proc: Path) -> str:
    for line in (proc / "net/route").read_text().splitlines()[1:]:
        words = line.split()
        if words[1] == "00000000":
            return words[0]
    return ""
