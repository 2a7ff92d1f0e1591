"""Reads a cgroup's details beyond CPU and memory usage: throttling, failures, limits, block I/O; cgroup v1 and v2.

For /metrics/cadvisor alone, where dashboards expect them: the CRI does not have them. Each metric has cAdvisor's name and
units. A file that a kernel does not have, or that disappears meanwhile, is left out. Blocks for about a millisecond a cgroup.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.usage import machine

_TICKS = os.sysconf("SC_CLK_TCK")
MOST_FILES = 20_000
"""Most open files of a container that are read: each takes a system call, and a process may have a million."""
_PROC, _DEVICES = Path("/proc"), Path("/sys/dev/block")


@dataclass(slots=True)
class Details:
    """Values by metric name; `devices`: by device, then by metric name."""

    samples: dict[str, float] = field(default_factory=dict)
    devices: dict[str, dict[str, float]] = field(default_factory=dict)
    pids: list[int] = field(default_factory=list)


def read(mount: Path, path: str, *, v2: bool) -> Details:
    """Read a cgroup by its path below the mount."""
    found = Details()
    if v2:
        _v2(found, mount / path)
    else:
        _v1(found, mount, path)
    if found.pids:
        _processes(found)
    return found


def _v2(found: Details, folder: Path) -> None:
    samples = found.samples
    cpu, memory, events = (_pairs(folder / name) for name in ("cpu.stat", "memory.stat", "memory.events"))
    _take(
        samples,
        cpu,
        container_cpu_user_seconds_total=("user_usec", 1e-6),
        container_cpu_system_seconds_total=("system_usec", 1e-6),
        container_cpu_cfs_periods_total=("nr_periods", 1),
        container_cpu_cfs_throttled_periods_total=("nr_throttled", 1),
        container_cpu_cfs_throttled_seconds_total=("throttled_usec", 1e-6),
    )
    _take(
        samples,
        memory,
        container_memory_cache=("file", 1),
        container_memory_mapped_file=("file_mapped", 1),
        container_memory_kernel_usage=("kernel", 1),
    )
    _take(samples, events, container_memory_failcnt=("max", 1), container_oom_events_total=("oom_kill", 1))
    for name, file in (
        ("container_memory_swap", "memory.swap.current"),
        ("container_memory_max_usage_bytes", "memory.peak"),
        ("container_threads", "pids.current"),
        ("container_threads_max", "pids.max"),
        ("container_spec_memory_limit_bytes", "memory.max"),
        ("container_spec_memory_reservation_limit_bytes", "memory.low"),
        ("container_spec_memory_swap_limit_bytes", "memory.swap.max"),
    ):
        _number(samples, name, folder / file)
    with contextlib.suppress(OSError, ValueError):
        quota, period = (folder / "cpu.max").read_text().split()
        samples["container_spec_cpu_period"] = float(period)
        if quota != "max":
            samples["container_spec_cpu_quota"] = float(quota)
        # The weight, 1 to 10000, as the shares that it stands for.
        weight = int((folder / "cpu.weight").read_text())
        samples["container_spec_cpu_shares"] = float(2 + (weight - 1) * 262142 // 9999)
    with contextlib.suppress(OSError, ValueError):
        for line in (folder / "io.stat").read_text().splitlines():
            device, *pairs = line.split()
            counts = {name: float(text) for name, _, text in (pair.partition("=") for pair in pairs)}
            _device(found, device, counts["rbytes"], counts["wbytes"], counts["rios"], counts["wios"])
    found.pids = _pids(folder)


def _v1(found: Details, mount: Path, path: str) -> None:
    samples, memory = found.samples, mount / "memory" / path
    ticks, cpu = _pairs(mount / "cpuacct" / path / "cpuacct.stat"), _pairs(mount / "cpu" / path / "cpu.stat")
    _take(
        samples,
        ticks,
        container_cpu_user_seconds_total=("user", 1 / _TICKS),
        container_cpu_system_seconds_total=("system", 1 / _TICKS),
    )
    _take(
        samples,
        cpu,
        container_cpu_cfs_periods_total=("nr_periods", 1),
        container_cpu_cfs_throttled_periods_total=("nr_throttled", 1),
        container_cpu_cfs_throttled_seconds_total=("throttled_time", 1e-9),
    )
    _take(
        samples,
        _pairs(memory / "memory.stat"),
        container_memory_cache=("total_cache", 1),
        container_memory_mapped_file=("total_mapped_file", 1),
        container_memory_swap=("total_swap", 1),
    )
    _take(samples, _pairs(memory / "memory.oom_control"), container_oom_events_total=("oom_kill", 1))
    cpu_folder = mount / "cpu" / path
    for name, file in (
        ("container_memory_failcnt", memory / "memory.failcnt"),
        ("container_memory_kernel_usage", memory / "memory.kmem.usage_in_bytes"),
        ("container_memory_max_usage_bytes", memory / "memory.max_usage_in_bytes"),
        ("container_threads", mount / "pids" / path / "pids.current"),
        ("container_threads_max", mount / "pids" / path / "pids.max"),
        ("container_spec_memory_limit_bytes", memory / "memory.limit_in_bytes"),
        ("container_spec_memory_reservation_limit_bytes", memory / "memory.soft_limit_in_bytes"),
        ("container_spec_memory_swap_limit_bytes", memory / "memory.memsw.limit_in_bytes"),
        ("container_spec_cpu_shares", cpu_folder / "cpu.shares"),
        ("container_spec_cpu_period", cpu_folder / "cpu.cfs_period_us"),
        ("container_spec_cpu_quota", cpu_folder / "cpu.cfs_quota_us"),
    ):
        _number(samples, name, file)
    if samples.get("container_spec_cpu_quota", 0.0) <= 0:
        samples.pop("container_spec_cpu_quota", None)
    blkio = mount / "blkio" / path
    counted, served = (
        _blkio(blkio / f"blkio.throttle.{kind}_recursive") for kind in ("io_serviced", "io_service_bytes")
    )
    for device, counts in served.items():
        times = counted.get(device, {})
        amounts = (counts.get("Read", 0.0), counts.get("Write", 0.0), times.get("Read", 0.0), times.get("Write", 0.0))
        _device(found, device, *amounts)
    found.pids = _pids(memory)


def _blkio(file: Path) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in file.read_text().splitlines():
            words = line.split()
            if len(words) == 3:
                found.setdefault(words[0], {})[words[1]] = float(words[2])
    return found


def _device(found: Details, numbers: str, *amounts: float) -> None:
    names = ("reads_bytes_total", "writes_bytes_total", "reads_total", "writes_total")
    shown = {f"container_fs_{name}": amount for name, amount in zip(names, amounts, strict=True)}
    found.devices[device_name(numbers)] = shown


def device_name(numbers: str) -> str:
    """Return the path of a block device by its numbers, as 8:0; the numbers where it is unknown."""
    try:
        return f"/dev/{os.path.basename(os.readlink(_DEVICES / numbers))}"
    except OSError:
        return numbers


def _processes(found: Details) -> None:
    """Count processes, open files and sockets, up to MOST_FILES, and read the first process's limit of open files."""
    samples, files, sockets = found.samples, 0, 0
    for pid in found.pids:
        with contextlib.suppress(OSError):
            with os.scandir(_PROC / str(pid) / "fd") as entries:
                for entry in itertools.islice(entries, MOST_FILES - files):
                    files += 1
                    with contextlib.suppress(OSError):
                        sockets += os.readlink(entry.path).startswith("socket:")
        if files == MOST_FILES:
            break
    samples["container_processes"] = len(found.pids)
    samples["container_file_descriptors"], samples["container_sockets"] = files, sockets
    with contextlib.suppress(OSError, ValueError):
        for line in (_PROC / str(found.pids[0]) / "limits").read_text().splitlines():
            if line.startswith("Max open files"):
                soft = line.split()[3]
                samples["container_ulimits_soft"] = -1.0 if soft == "unlimited" else float(soft)


def interfaces(pid: int) -> dict[str, list[int]]:
    """Read the counters of a process's network namespace: received, then sent: bytes, packets, errors, dropped."""
    try:
        counters = machine.network_counters(_PROC / str(pid))
    except OSError:
        return {}
    return {name: [*numbers[:4], *numbers[8:12]] for name, numbers in counters.items()}


def _take(samples: dict[str, float], pairs: Mapping[str, int], **wanted: tuple[str, float]) -> None:
    for name, (key, unit) in wanted.items():
        if key in pairs:
            samples[name] = pairs[key] * unit


def _number(samples: dict[str, float], name: str, file: Path) -> None:
    """Take a file of one number; without a limit ("max", or near 2^63) it is 0, as cAdvisor has it."""
    with contextlib.suppress(OSError, ValueError):
        text = file.read_text().strip()
        number = 0 if text == "max" else int(text)
        samples[name] = 0.0 if number > 1 << 60 else float(number)


def _pairs(file: Path) -> dict[str, int]:
    try:
        return {words[0]: int(words[1]) for words in (line.split() for line in file.read_text().splitlines())}
    except (OSError, ValueError, IndexError):
        return {}


def _pids(folder: Path) -> list[int]:
    try:
        return [int(line) for line in (folder / "cgroup.procs").read_text().split()]
    except (OSError, ValueError):
        return []
