"""Reads that fail as a disk with bad blocks lets them: SQLite is given EIO where it calls pread(2) for certain files.

SQLite lets the system calls of its unix layer be replaced (sqlite3_vfs.xSetSystemCall, made for tests like these). So all
of SQLite and of the store runs as it is; only the kernel's answer is another one. Every connection of the process is concerned.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_LIBRARY = "libsqlite3.so.0"
_CALLS = (b"pread", b"pread64", b"read")
"""C functions that SQLite may read with; it depends on its build."""
_POSITIONED = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, use_errno=True
)
_PLAIN = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, use_errno=True)
_POINTERS = (
    "delete access full_name open_library error symbol close_library random sleep time last_error time64".split()
)
_SET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class _Vfs(ctypes.Structure):
    _fields_ = (
        [(name, ctypes.c_int) for name in ("version", "file_size", "longest_path")]
        + [(name, ctypes.c_void_p) for name in ("next", "name", "data", "open", *_POINTERS)]
        + [("set_call", _SET), ("get_call", ctypes.c_void_p), ("next_call", ctypes.c_void_p)]
    )


class FailingReads:
    """While `on`, reads of the file fail from `first` (bytes) on; `failed` counts them."""

    def __init__(self, path: Path) -> None:
        self.path, self.on, self.first, self.failed = path, False, 0, 0

    def fails(self, descriptor: int, offset: int) -> bool:
        if not self.on or offset < self.first:
            return False
        with contextlib.suppress(OSError):
            hit = os.readlink(f"/proc/self/fd/{descriptor}") == str(self.path)
            self.failed += hit
            return hit
        return False


@contextlib.contextmanager
def failing_reads(path: Path) -> Iterator[FailingReads]:
    """Put the replacement in place for a while; it lets all pass until it is set otherwise."""
    library, libc = ctypes.CDLL(_LIBRARY), ctypes.CDLL(None, use_errno=True)
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    vfs = library.sqlite3_vfs_find(None)
    made = FailingReads(path.resolve())
    calls = {name: _replacement(made, libc, name) for name in _CALLS}
    try:
        for name, call in calls.items():
            vfs.contents.set_call(ctypes.cast(vfs, ctypes.c_void_p), name, ctypes.cast(call, ctypes.c_void_p))
        yield made
    finally:
        for name in calls:
            vfs.contents.set_call(ctypes.cast(vfs, ctypes.c_void_p), name, None)


def _replacement(made: FailingReads, libc: ctypes.CDLL, name: bytes) -> Any:
    original = getattr(libc, name.decode())
    original.restype = ctypes.c_ssize_t

    def call(descriptor: int, buffer: int, size: int, offset: int = 0) -> int:
        if made.fails(descriptor, offset):
            ctypes.set_errno(errno.EIO)
            return -1
        place: tuple[Any, ...] = () if name == b"read" else (ctypes.c_int64(offset),)
        read: int = original(descriptor, ctypes.c_void_p(buffer), ctypes.c_size_t(size), *place)
        return read

    kind: Callable[[Any], Any] = _PLAIN if name == b"read" else _POSITIONED
    return kind(call)
