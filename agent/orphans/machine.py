"""Lists shims, bundles, network namespaces and addresses of sandboxes, from /proc and containerd's directories.

Every item has its creation time (wall clock). All functions block.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agent.config import OwnContainerd
from agent.volumes.mounts import mount_points
from kube import process_files

SHIM, BUNDLE, NETNS, ADDRESS, CONTAINER, LEASE = "shim", "bundle", "netns", "address", "container", "lease"
_COMM = b"containerd-shim"
_PROC = Path("/proc")
_ID = re.compile("[0-9a-f]{64}")
"""The form of sandbox and container IDs of CRI; containers with other IDs were not created through CRI."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Item:
    """One resource; `owner` is the ID of its sandbox or container, "" if it cannot be read."""

    kind: str
    name: str
    born: float = field(compare=False)
    """Seconds since 1970."""
    owner: str = ""
    pid: int = 0
    ticks: int = 0
    """The process's start time in ticks since boot: together with the PID it identifies one process."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """The running containerd process."""

    pid: int
    ticks: int
    began: float = field(compare=False)
    """Its start time. All resources that it has created are younger, also if the wall clock was set meanwhile."""


def daemon(path: Path) -> Daemon:
    """Return the containerd behind a socket; raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(5.0)
        connection.connect(str(path))
        pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if pid <= 0:
        raise ProcessLookupError(f"{path} belongs to a process of another PID namespace")
    ticks = _ticks(pid)
    # The start by the clock as it goes now, or the socket's making as it went then: the earlier of the two.
    return Daemon(pid, ticks, min(_when(ticks), path.stat().st_mtime))


def _ticks(pid: int) -> int:
    return int(process_files.stat(_PROC / str(pid))[19])


def _when(ticks: int) -> float:
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / _TICKS


def scan(of: OwnContainerd, by: Daemon) -> list[Item]:
    """List the resources of all kinds."""
    return [*shims(of, by), *bundles(of), *namespaces(of), *addresses(of)]


def shims(of: OwnContainerd, by: Daemon) -> Iterator[Item]:
    for folder in _processes():
        with contextlib.suppress(OSError, ValueError):
            if process_files.name(folder) == _COMM:
                yield shim(of, by, int(folder.name))


def shim(of: OwnContainerd, by: Daemon, pid: int) -> Item:
    """Read a shim of this containerd; raises OSError, and ValueError if the process is not a shim of it.

    Any process can choose its name, its command line and how long that is, and may make reading it block. So it has to be of
    containerd's user, a shim's program, and in containerd's mount namespace, in which no container's process is.
    """
    folder = _PROC / str(pid)
    if process_files.users(folder) != process_files.users(_PROC / str(by.pid)):
        raise ValueError(f"process {pid} is another user's than containerd")
    if not os.path.basename(os.readlink(folder / "exe")).startswith(_COMM.decode()):
        raise ValueError(f"process {pid} runs no shim's program")
    if os.readlink(folder / "ns/mnt") != os.readlink(_PROC / str(by.pid) / "ns/mnt"):
        raise ValueError(f"process {pid} is in another mount namespace than containerd")
    arguments = process_files.command_line(folder).decode().split("\0")
    owner = arguments[arguments.index("-id") + 1]
    ours = arguments[arguments.index("-address") + 1] == str(of.socket) and "delete" not in arguments
    if not (ours and _ID.fullmatch(owner)):
        raise ValueError(f"process {pid} is no shim of {of.socket}")
    ticks = _ticks(pid)
    return Item(SHIM, str(pid), _when(ticks), owner, pid, ticks)


def bundles(of: OwnContainerd) -> Iterator[Item]:
    for entry in _entries(of.bundles):
        with contextlib.suppress(OSError):
            owner = entry.name.removeprefix(".")
            if _ID.fullmatch(owner):
                yield Item(BUNDLE, entry.name, entry.stat(follow_symlinks=False).st_mtime, owner)


def namespaces(of: OwnContainerd) -> Iterator[Item]:
    """List mounted network namespaces without processes.

    A mount keeps the inode of its namespace, so the inode's time is that of the namespace's creation.
    """
    found = {}
    mounted = set(mount_points(of.namespaces))
    for entry in _entries(of.namespaces):
        with contextlib.suppress(OSError):
            status = os.stat(entry.path)
            # Before it is mounted, and after, it is a file; that of a namespace that is being made is young.
            inode = status.st_ino if entry.path in mounted else 0
            found[entry.path] = (inode, status.st_mtime)
    used = _used() if found else set()
    for path, (inode, born) in found.items():
        if inode not in used:
            yield Item(NETNS, path, born)


def addresses(of: OwnContainerd) -> Iterator[Item]:
    for entry in _entries(of.reservations):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            owner = Path(entry.path).read_text().split("\n")[0].strip()
            if _ID.fullmatch(owner):
                yield Item(ADDRESS, entry.name, entry.stat(follow_symlinks=False).st_mtime, owner)


def _used() -> set[int]:
    """Return the inodes of network namespaces that processes are in."""
    found = set()
    for folder in _processes():
        with contextlib.suppress(OSError, ValueError):
            found.add(int(os.readlink(folder / "ns/net")[len("net:[") : -1]))
    return found


def _processes() -> list[Path]:
    return [Path(entry.path) for entry in _entries(_PROC) if entry.name.isdecimal()]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []
