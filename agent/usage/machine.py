"""Reads the machine's usage from /proc and statvfs. All functions except `disk_use` block for well under a millisecond."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import time
from pathlib import Path

from agent.files.walk import entries_below
from agent.usage.model import CPU, Filesystem, Interface, Memory

_PROC = Path("/proc")
ENTRIES_PER_YIELD = 1000
MOST_DEVICES = 4096
"""Network devices of a namespace that are reported; a pod with CAP_NET_ADMIN can create more."""
_WALKS = 3
"""Attempts to sum up a directory whose directories are moved during the walk."""
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
    counters = network_counters(proc)
    found = [Interface(name, numbers[0], numbers[2], numbers[8], numbers[10]) for name, numbers in counters.items()]
    default = _default_interface(proc)
    return tuple(sorted(found, key=lambda interface: (interface.name != default, interface.name)))


def network_counters(proc: Path = _PROC) -> dict[str, list[int]]:
    """Read the 16 numbers of each network device but loopback. Raise OSError.

    Pods name their devices, in any bytes but spaces, slashes and colons: those that are no UTF-8 are replaced. Devices after
    the first MOST_DEVICES are left out.
    """
    found = {}
    with open(proc / "net/dev", errors="replace", newline="\n") as lines:
        for line in itertools.islice(lines, 2, 2 + MOST_DEVICES):
            name, _, counts = line.rpartition(":")
            with contextlib.suppress(ValueError):
                numbers = [int(word) for word in counts.split()]
                if name.strip() != "lo" and len(numbers) >= 16:
                    found[name.strip()] = numbers
    return found


def filesystem(now: float, path: Path, used: int | None = None, inodes_used: int | None = None) -> Filesystem:
    """Read the file system that holds a path; `used` where less than all of it is meant."""
    found = os.statvfs(path)
    capacity, free = found.f_blocks * found.f_frsize, found.f_bfree * found.f_frsize
    return Filesystem(
        now,
        capacity=capacity,
        available=found.f_bavail * found.f_frsize,
        used=capacity - free if used is None else used,
        inodes=found.f_files,
        inodes_free=found.f_ffree,
        inodes_used=found.f_files - found.f_ffree if inodes_used is None else inodes_used,
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
    """Add up a file or directory: bytes allocated and inodes, at any depth, following no links, leaving out mounts."""
    try:
        top = path.lstat()
    except OSError:
        return 0, 0
    own = top.st_blocks * 512
    if not stat.S_ISDIR(top.st_mode):
        return own, 1
    size = inodes = 0
    for _ in range(_WALKS):
        found = _Sum()
        # Where a folder was moved under way, what was found is there all the same.
        with contextlib.suppress(OSError):
            found.add(path)
        size, inodes = max(size, found.size), max(inodes, found.inodes)
        if found.whole:
            break
    return own + size, 1 + inodes


class _Sum:
    def __init__(self) -> None:
        self.size = self.inodes = 0
        self.whole = False
        """True if no folder was moved, or gone before it was read: it may have been moved."""
        self._vanished = False

    def add(self, folder: Path) -> None:
        """Add what is below a folder. Raise OSError if the walk cannot continue."""
        began = time.perf_counter()
        for descriptor, name, _ in entries_below(folder, self._miss):
            if (self.inodes + 1) % ENTRIES_PER_YIELD == 0:
                # Of millions of files the agent counts half of the time at most: threads share one interpreter.
                _pause(time.perf_counter() - began)
                began = time.perf_counter()
            with contextlib.suppress(
                OSError
            ):  # removed meanwhile, or of a disk that fails: the others count all the same
                found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                self.size, self.inodes = self.size + found.st_blocks * 512, self.inodes + 1
        self.whole = not self._vanished

    def _miss(self, name: str) -> None:
        self._vanished = True


def _pause(seconds: float) -> None:
    time.sleep(seconds)


def _vmstat(proc: Path) -> dict[str, int]:
    pairs = (line.split() for line in (proc / "vmstat").read_text().splitlines())
    return {name: int(value) for name, value in pairs if name in ("pgfault", "pgmajfault")}


def _default_interface(proc: Path) -> str:
    for line in (proc / "net/route").read_text(errors="replace").split("\n")[1:]:
        words = line.split()
        if len(words) > 1 and words[1] == "00000000":
            return words[0]
    return ""
