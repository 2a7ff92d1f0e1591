"""Reads what other processes write about themselves in /proc, with a limit.

A process can make its command line as long as its address space without using memory (prctl PR_SET_MM_MAP), and can choose any
bytes as its name.
"""

from __future__ import annotations

import os
from pathlib import Path

LONGEST_COMMAND_LINE = 64 << 10
"""Bytes; command lines of containerd's shims and of the daemons have a few hundred."""
_NAME_BYTES = 64
_STAT_BYTES = 4096


def command_line(process: Path) -> bytes:
    """Return the arguments of a process, each with a NUL after it, of its folder in /proc.

    Raise OSError, and ValueError where they are longer than LONGEST_COMMAND_LINE.
    """
    found = _read(process / "cmdline", LONGEST_COMMAND_LINE + 1)
    if len(found) > LONGEST_COMMAND_LINE:
        raise ValueError(f"the command line of {process} is longer than {LONGEST_COMMAND_LINE} bytes")
    return found


def name(process: Path) -> bytes:
    """Return the name of a process. Raise OSError."""
    return _read(process / "comm", _NAME_BYTES).removesuffix(b"\n")


def stat(process: Path) -> list[bytes]:
    """Return the fields of a process's `stat` from the third, its state, on. Raise OSError."""
    return _read(process / "stat", _STAT_BYTES).rpartition(b")")[2].split()


def users(process: Path) -> list[bytes]:
    """Return the real, effective, saved and file system user IDs of a process. Raise OSError, ValueError.

    The owner of its files says less: they are root's if the process cannot be dumped, as one of a setuid program.
    """
    for line in _read(process / "status", _STAT_BYTES).split(b"\n"):
        if line.startswith(b"Uid:"):
            return line.split()[1:]
    raise ValueError(f"{process} has no user")


def _read(path: Path, most: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, most)
    finally:
        os.close(descriptor)
