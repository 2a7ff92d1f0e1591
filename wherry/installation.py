"""The installed program and the daemons that run: detects daemons that started before it was replaced."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from kube import build

TICKS = os.sysconf("SC_CLK_TCK")
FILE = Path(build.__file__)
"""A file that every installation writes anew; its inode's time is that of the installation, also in packages."""


def outdated(daemons: Mapping[str, int]) -> list[str]:
    """Return the names of Wherry's daemons, by their process IDs, that run an earlier version than the installed one."""
    installed, now = FILE.stat().st_ctime, time.time()
    return [name for name, pid in daemons.items() if pid and name != "containerd" and now - uptime(pid) < installed]


def uptime(pid: int) -> float:
    """Return the seconds since a process was started, 0 if it does not run."""
    try:
        started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        return max(0.0, float(Path("/proc/uptime").read_text().split()[0]) - started / TICKS)
    except (OSError, ValueError, IndexError):
        return 0.0
