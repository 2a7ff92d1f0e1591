"""Paths of /proc and /sys that a container must not see or write (Docker's and upstream's default lists).

`thermal_throttle` shows how often a CPU was throttled, which reveals what other containers compute. Not every machine has it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

_MASKED = (
    "/proc/asound /proc/acpi /proc/interrupts /proc/kcore /proc/keys /proc/latency_stats /proc/timer_list "
    "/proc/timer_stats /proc/sched_debug /proc/scsi /sys/firmware /sys/devices/virtual/powercap"
).split()
READ_ONLY = "/proc/bus /proc/fs /proc/irq /proc/sys /proc/sysrq-trigger".split()


@cache
def masked(cpus: Path = Path("/sys/devices/system/cpu")) -> list[str]:
    """Return the paths that are hidden from containers (pkg/securitycontext/util.go). Reads /sys at the first call."""
    return [*_MASKED, *sorted(map(str, cpus.glob("cpu[0-9]*/thermal_throttle")))]
