"""Wait for changes in directories through the kernel's inotify, by way of libc, since Python has no binding of its own.

The kernel counts instances by user, and those of a container's root are the host root's where there is no user namespace: a
pod can take them all (/proc/sys/fs/inotify). So all watchers of an event loop share one instance. What the kernel refuses
to watch is compared with its last state every `POLL_SECONDS`, until the kernel watches it.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
import struct
from pathlib import Path
from types import TracebackType
from weakref import WeakKeyDictionary

log = logging.getLogger(__name__)

MODIFY, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x002, 0x008, 0x040, 0x080, 0x100, 0x200
_OF_THE_WATCH = 0x2000 | 0x4000 | 0x8000
"""Bits that come unasked: unmounted, events were lost, watched no more."""
_IGNORED, _MASK_ADD = 0x8000, 0x20000000
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM)
POLL_SECONDS = 1.0

_HEAD = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)

_Entries = dict[str, tuple[int, int, int]]


class _Instance:
    """The inotify instance of an event loop. Raise OSError if the kernel gives none."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._watches: dict[int, dict[Watcher, int]] = {}
        self._loop = loop
        loop.add_reader(self._fd, self._read)

    def watch(self, watcher: Watcher, directory: Path, mask: int) -> None:
        """Tell a watcher of a directory's events, also from a thread. Raise OSError."""
        watch = _libc.inotify_add_watch(self._fd, os.fsencode(directory), mask | _MASK_ADD)
        if watch < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), str(directory))
        watchers = self._watches.setdefault(watch, {})
        watchers[watcher] = watchers.get(watcher, 0) | mask

    def leave(self, watcher: Watcher) -> None:
        """Tell a watcher nothing more."""
        for watch, watchers in list(self._watches.items()):
            if watchers.pop(watcher, None) is not None and not watchers:
                del self._watches[watch]
                _libc.inotify_rm_watch(self._fd, watch)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 64 << 10)
        except BlockingIOError:
            return
        position = 0
        while position < len(data):
            watch, mask, _, length = _HEAD.unpack_from(data, position)
            name = data[position + _HEAD.size : position + _HEAD.size + length].rstrip(b"\0")
            position += _HEAD.size + length
            self._hand_out(watch, os.fsdecode(name), mask)

    def _hand_out(self, watch: int, name: str, mask: int) -> None:
        # The kernel reports lost events without a watch: they may have been anybody's.
        for watchers in self._watches.values() if watch < 0 else [self._watches.get(watch, {})]:
            for watcher, wanted in list(watchers.items()):
                if mask & (wanted | _OF_THE_WATCH):
                    watcher.notify(name, mask)
        if mask & _IGNORED:
            self._watches.pop(watch, None)


class _Shared:
    """The watchers of an event loop, and their instance where the kernel gave one."""

    def __init__(self) -> None:
        self.watchers: set[Watcher] = set()
        self.instance: _Instance | None = None


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()


class Watcher:
    """Reports events in directories as (name, mask); one consumer. Events of a name that have not been read yet are merged."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._events: dict[str, int] = {}
        self._polled: dict[Path, tuple[int, _Entries]] = {}
        """The mask and the last state of directories that the kernel does not watch."""
        self._loop = asyncio.get_running_loop()
        self._all = _shared.setdefault(self._loop, _Shared())
        self._all.watchers.add(self)
        try:
            self._get_instance()
        except OSError as error:
            log.warning("the kernel gives no inotify instance (%s): directories are polled instead", error)

    def add(self, directory: Path, mask: int) -> None:
        """Watch a directory's entries. Raise OSError if it cannot be read."""
        try:
            if self._all.instance is not None:
                self._all.instance.watch(self, directory, mask)
                return
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            if directory not in self._polled:
                log.warning("the kernel does not watch %s (%s): it is polled instead", directory, error)
        if directory not in self._polled:
            self._polled[directory] = (mask, _entries(directory))

    async def wait(self, timeout: float) -> list[tuple[str, int]]:
        """Return what has happened since the last call, waiting for something at most so many seconds."""
        deadline = self._loop.time() + timeout
        while not self._changed.is_set():
            left = deadline - self._loop.time()
            if left <= 0:
                return []
            try:
                async with asyncio.timeout(min(left, POLL_SECONDS) if self._polled else left):
                    await self._changed.wait()
            except TimeoutError:
                self._scan()
        self._changed.clear()
        events, self._events = self._events, {}
        return list(events.items())

    def notify(self, name: str, mask: int) -> None:
        """Process an event."""
        self._events[name] = self._events.get(name, 0) | mask
        self._changed.set()

    def _get_instance(self) -> _Instance:
        if self._all.instance is None:
            self._all.instance = _Instance(self._loop)
        return self._all.instance

    def _scan(self) -> None:
        """Scan the directories that the kernel does not watch, and try to have it watch them."""
        for directory, (mask, before) in list(self._polled.items()):
            try:
                self._get_instance().watch(self, directory, mask)
                del self._polled[directory]
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    del self._polled[directory]
                    self.notify("", _IGNORED)
                    continue
            try:
                now = _entries(directory)
            except FileNotFoundError:
                self._polled.pop(directory, None)
                self.notify("", _IGNORED)
                continue
            except OSError:
                continue  # the next look finds no lack of descriptors any more
            if directory in self._polled:
                self._polled[directory] = (mask, now)
            for name in before.keys() | now.keys():
                if event := _event(before.get(name), now.get(name)) & mask:
                    self.notify(name, event)

    def __enter__(self) -> Watcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._all.watchers.discard(self)
        if (instance := self._all.instance) is not None:
            instance.leave(self)
            if not self._all.watchers:
                instance.close()
                self._all.instance = None


def _entries(directory: Path) -> _Entries:
    found = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            found[entry.name] = (status.st_ino, status.st_mtime_ns, status.st_size)
    return found


def _event(before: tuple[int, int, int] | None, now: tuple[int, int, int] | None) -> int:
    """Return what may have happened to an entry between two looks; whether its writer has closed it is not known."""
    if before == now:
        return 0
    if now is None:
        return DELETE | MOVED_FROM
    if before is None or before[0] != now[0]:
        return CREATE | MOVED_TO | CLOSE_WRITE
    return MODIFY | CLOSE_WRITE
