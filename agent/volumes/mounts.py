"""mount(2) and umount2(2), and the kernel's list of mounts.

They are called through libc: a mount takes microseconds, starting mount(8) takes milliseconds, and a source can be named by an
open descriptor (/proc/self/fd/N), which avoids races of subPath.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_MS_BIND, _MS_REC, _MS_SHARED = 1 << 12, 1 << 14, 1 << 20
_PLUGINS = "/plugins/kubernetes.io/"
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None) -> None:
    def text(value: str | None) -> bytes | None:
        if value is not None and "\0" in value:  # C would read the part before it
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), value)
        return os.fsencode(value) if value is not None else None

    result = _libc.mount(text(source), text(target), text(kind), ctypes.c_ulong(flags), text(data))
    _check(result, target)


def mount_tmpfs(target: Path, *, size: int = 0, mode: int = 0o777) -> None:
    """Mount an empty tmpfs; size in bytes, 0 leaves the kernel's half of memory. Raise OSError.

    It is not swapped to disk, where secrets do not belong, if the kernel knows the option (Linux 6.4 and later).
    """
    options = f"mode={mode:o}" + (f",size={size}" if size else "")
    try:
        _mount("tmpfs", str(target), "tmpfs", 0, options + ",noswap")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _mount("tmpfs", str(target), "tmpfs", 0, options)


def mount_hugetlbfs(target: Path, page_size: str = "") -> None:
    """Mount hugetlbfs for pages of a size such as 2Mi. Raise OSError."""
    _mount("nodev", str(target), "hugetlbfs", 0, f"pagesize={page_size}" if page_size else None)


def bind_descriptor(descriptor: int, target: Path) -> None:
    """Bind what an open descriptor names onto a path, without what is mounted below it. Raise OSError."""
    _mount(f"/proc/self/fd/{descriptor}", str(target), None, _MS_BIND, None)


def bind(source: Path, target: Path) -> None:
    """Bind a path onto another, without what is mounted below it. Raise OSError."""
    _mount(str(source), str(target), None, _MS_BIND, None)


def make_shared(point: Path) -> None:
    """Have mounts at and below a mount point pass to its copies, and from there. Raise OSError."""
    _mount("none", str(point), None, _MS_SHARED | _MS_REC, None)


def unmount(target: str | Path) -> None:
    """Detach a mount at exactly this path, never through a link at its end. Raise OSError."""
    _check(_libc.umount2(os.fsencode(target), _MNT_DETACH | _UMOUNT_NOFOLLOW), str(target))


def mount_points(below: Path) -> list[str]:
    """List the mount points at or below a path, deepest first."""
    prefix = str(below)
    points = (_unescape(fields[4]) for fields in _mountinfo())
    return sorted((p for p in points if p == prefix or p.startswith(f"{prefix}/")), key=len, reverse=True)


def is_mount_point(path: Path) -> bool:
    """Return whether something is mounted at exactly this path, bind mounts of files included."""
    return str(path) in mount_points(path)


def has_mount(path: Path) -> bool:
    """Return whether something is mounted at a path, without reading all mounts of the machine.

    It asks the mounted file system, which may hang. Raise OSError.
    """
    try:
        return _mount_id(path) != _mount_id(path.parent)
    except FileNotFoundError:
        return False


def _mount_id(path: Path) -> bytes:
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        lines = Path(f"/proc/self/fdinfo/{descriptor}").read_bytes().splitlines()
    finally:
        os.close(descriptor)
    return next(line for line in lines if line.startswith(b"mnt_id:"))


def is_shared(path: Path) -> bool:
    """Return whether the mount that a path is on is a shared one."""
    with open("/proc/self/mountinfo", "rb") as lines:
        every = [line.split(b" - ", 1)[0].split() for line in lines]
    above = [fields for fields in every if _is_below(str(path), _unescape(fields[4]))]
    return any(field.startswith(b"shared:") for field in above[-1][6:])


def is_bound_to_itself(path: Path) -> bool:
    """Return whether the last mount at a path is a bind mount of the path itself."""
    above = [fields for fields in _mountinfo() if _is_below(str(path), _unescape(fields[4]))]
    if len(above) < 2 or _unescape(above[-1][4]) != str(path):
        return False
    (*_, number, root, _), (*_, device, top, point) = above[-1], above[-2]
    inside = os.path.normpath(os.path.join(_unescape(top), os.path.relpath(path, _unescape(point))))
    return number == device and _unescape(root) == inside


class MountTable:
    """The mounts at and below a directory, read from the kernel once, on first use."""

    def __init__(self, below: Path) -> None:
        self._below = below
        self._counts: Counter[str] | None = None

    def has(self, path: Path) -> bool:
        """Return whether something was mounted at exactly this path."""
        return self._read()[str(path)] > 0

    def clear(self, path: Path) -> None:
        """Unmount all that was mounted at exactly this path. Raise OSError."""
        for _ in range(self._read().pop(str(path), 0)):
            unmount(path)

    def _read(self) -> Counter[str]:
        if self._counts is None:
            self._counts = Counter(mount_points(self._below))
        return self._counts


def references(path: Path) -> list[str]:
    """List other mount points of what is mounted at a path: the same root of the same file system (upstream: HasMountRefs).

    Mounts of /var/lib/kubelet elsewhere show the path itself once more; those are left out. The path is not accessed,
    since its file system may never answer.
    """
    wanted = os.path.join(os.path.realpath(path.parent), path.name)
    found = [(fields[2], _unescape(fields[3]), _unescape(fields[4])) for fields in _mountinfo()]
    above = [entry for entry in reversed(found) if _is_below(wanted, entry[2])]
    if not above:
        return []
    device, root, point = max(above, key=lambda entry: len(entry[2]))  # the last where mounts cover each other
    inside = os.path.normpath(os.path.join(root, os.path.relpath(wanted, point)))
    own = wanted[wanted.find(_PLUGINS) :] if _PLUGINS in wanted else wanted
    return [where for number, top, where in found if (number, top) == (device, inside) and own not in where]


def _is_below(path: str, folder: str) -> bool:
    return folder == "/" or path == folder or path.startswith(f"{folder}/")


def is_mounted(device: str) -> bool:
    """Return whether a block device's file system is mounted anywhere."""
    number = os.stat(device).st_rdev
    wanted = f"{os.major(number)}:{os.minor(number)}"
    return any(fields[2] == wanted.encode() for fields in _mountinfo())


def _mountinfo() -> Iterator[list[bytes]]:
    """Yield the first fields of each mount, up to its mount point (proc_pid_mountinfo(5)).

    They are bytes: pods choose names in them, which need be neither UTF-8 nor free of what ends a line of text.
    """
    with open("/proc/self/mountinfo", "rb") as lines:
        for line in lines:
            yield line.split(b" ", 5)[:5]


def _unescape(path: bytes) -> str:
    for code, character in ((rb"\040", b" "), (rb"\011", b"\t"), (rb"\012", b"\n"), (rb"\134", b"\\")):
        path = path.replace(code, character)
    return os.fsdecode(path)
