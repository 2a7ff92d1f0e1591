"""Wait for changes in a directory through the kernel's inotify, by way of libc, since Python has no binding of its own."""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from pathlib import Path
from types import TracebackType

MODIFY, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x002, 0x008, 0x040, 0x080, 0x100, 0x200

_HEAD = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Watcher:
    """Tells of events in directories as (name, mask); one consumer. Raise OSError where the kernel refuses."""

    def __init__(self) -> None:
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._changed = asyncio.Event()
        self._events: list[tuple[str, int]] = []
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._read)

    def add(self, directory: Path, mask: int) -> None:
        """Watch a directory's entries."""
        if _libc.inotify_add_watch(self._fd, os.fsencode(directory), mask) < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), str(directory))

    async def wait(self, timeout: float) -> list[tuple[str, int]]:
        """Return what has happened since the last call, waiting for something at most so many seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            return []
        self._changed.clear()
        events, self._events = self._events, []
        return events

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 64 << 10)
        except BlockingIOError:
            return
        position = 0
        while position < len(data):
            _, mask, _, length = _HEAD.unpack_from(data, position)
            name = data[position + _HEAD.size : position + _HEAD.size + length].rstrip(b"\0")
            self._events.append((os.fsdecode(name), mask))
            position += _HEAD.size + length
        self._changed.set()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
