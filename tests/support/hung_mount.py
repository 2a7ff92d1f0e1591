"""A mounted folder whose file server stops answering and comes back, as NFS servers do: a small FUSE server in a thread.

It speaks the kernel's protocol itself (fuse(4), version 7.31), so no package is needed. The folder is empty. Needs root.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_HEADER, _ANSWER = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")
_FORGET, _GETATTR, _STATFS, _INIT, _OPENDIR, _READDIR, _RELEASEDIR, _BATCH_FORGET = 2, 3, 17, 26, 27, 28, 29, 42
_DETACH = 2


class HungMount:
    """A mount at `path`; while it hangs every call on it waits, killable only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        self._answering = threading.Event()
        self._answering.set()
        self._wake_read, self._wake_write = os.pipe()
        self._ended = False
        self._waiting = 0
        self._thread = threading.Thread(target=self._serve, name="file-server", daemon=True)

    def mount(self) -> None:
        options = f"fd={self._fuse},rootmode=40000,user_id=0,group_id=0,allow_other"
        if _libc.mount(b"file-server", str(self.path).encode(), b"fuse", 0, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), "mount", str(self.path))
        self._thread.start()

    def hang(self) -> None:
        """Answer nothing from now on."""
        self._answering.clear()
        os.write(self._wake_write, b"x")

    def answer(self) -> None:
        """Answer again, also what has been asked meanwhile."""
        self._answering.set()

    def requested(self) -> bool:
        """Return whether somebody waits for an answer."""
        return bool(select.select([self._fuse], [], [], 0)[0])

    def close(self) -> None:
        """Fail what waits and take the mount away."""
        self._ended = True
        self._answering.set()
        os.write(self._wake_write, b"x")
        self._thread.join()
        os.close(self._fuse)  # the last of the server: the kernel fails what it was asked
        _libc.umount2(str(self.path).encode(), _DETACH)
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _serve(self) -> None:
        while not self._ended:
            self._answering.wait()
            ready = select.select([self._fuse, self._wake_read], [], [])[0]
            if self._wake_read in ready:
                os.read(self._wake_read, 1)
            elif not self._ended and not self._next():
                return

    def _next(self) -> bool:
        """Answer a request; False once the folder is unmounted."""
        try:
            self._one(os.read(self._fuse, 1 << 18))
        except OSError as error:
            if error.errno == errno.ENODEV:
                return False
            if error.errno != errno.ENOENT:  # the request was interrupted
                raise
        return True

    def _one(self, request: bytes) -> None:
        _, operation, unique, *_ = _HEADER.unpack_from(request)
        if operation in (_FORGET, _BATCH_FORGET):
            return
        body = _body(operation)
        error = 0 if body is not None else -(errno.ENOENT if operation == 1 else errno.ENOSYS)
        answer = _ANSWER.pack(_ANSWER.size + len(body or b""), error, unique) + (body or b"")
        os.write(self._fuse, answer)


def _body(operation: int) -> bytes | None:
    if operation == _INIT:
        return struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 12, 9, 1 << 17, 1, 0, 0, 0)
    if operation == _GETATTR:
        # Never valid: each look at the folder is a question to the server.
        return struct.pack("<QII6Q10I", 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0)
    if operation == _STATFS:
        return struct.pack("<5Q4I24x", 1000, 500, 500, 1000, 500, 4096, 255, 4096, 0)
    return {_OPENDIR: bytes(16), _READDIR: b"", _RELEASEDIR: b""}.get(operation)


@contextlib.contextmanager
def hung_mount(path: Path) -> Iterator[HungMount]:
    """Mount a file server on a folder and take it away again."""
    mount = HungMount(path)
    mount.mount()
    try:
        yield mount
    finally:
        mount.close()
