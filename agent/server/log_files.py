"""Reads a container's log file, whose lines log_lines.py parses, and follows it.

inotify, not a timer, wakes a reader that follows; a file that was renamed by rotation is read to its end before the new one is
opened. Files are opened component by component without following links: a container must not be able to point its log at
another file of the host.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ParamSpec, TypeVar

from agent.server.log_descriptors import LogDescriptors
from agent.server.log_lines import LogOptions, LogWriter
from agent.server.log_tail import tail_offset
from agent.server.log_threads import InThread
from kube import inotify
from kube.serving.frames import SessionYield

_CHUNK = 128 << 10
LINES_PER_YIELD = 256
"""Lines to parse before yielding to other readers and all else in the event loop."""
LONGEST_LINE = 16 << 20
"""Bytes of a line that are kept: what continues beyond them without a newline is left out. The runtime cuts at 16 KiB."""
P = ParamSpec("P")
T = TypeVar("T")
_STATE_CHECK_SECONDS = 5.0  # upstream's stateCheckPeriod, should a wake-up be missed


def open_beneath(root: Path, path: Path) -> int:
    """Open a file for reading below root, following no link in its path. Raise OSError, ValueError when outside."""
    parts = path.relative_to(root).parts
    if not parts or ".." in parts:
        raise ValueError(f"{path} is not a file below {root}")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            inner = os.open(part, flags, dir_fd=folder)
            os.close(folder)
            folder = inner
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(parts[-1], flags, dir_fd=folder)
    finally:
        os.close(folder)


async def read(
    root: Path,
    path: Path,
    options: LogOptions,
    running: Callable[[], Awaitable[bool]],
    session_yield: SessionYield,
    in_thread: InThread,
) -> AsyncGenerator[bytes, None]:
    """Yield a log in pieces; with follow, until the container has ended and everything was read.

    `running` returns whether the container still runs; `session_yield` is shared by all readers; `in_thread` calls a function
    that uses the file. Raise OSError when the file cannot be opened.
    """
    writer = LogWriter(options)
    with ExitStack() as stack:
        watcher: inotify.Watcher | None = None
        if options.follow:
            watcher = stack.enter_context(inotify.Watcher())
            watcher.add(path.parent, inotify.MODIFY | inotify.CLOSE_WRITE | inotify.CREATE | inotify.MOVED_TO)
        files = LogDescriptors()
        stack.callback(files.close)

        async def use(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
            return await in_thread(lambda: files.use(function, *args, **kwargs))

        fd = await use(_open, files, root, path)
        offset = await tail_offset(fd, options.tail_lines, use)
        lines = _Lines()
        pause = _STATE_CHECK_SECONDS
        ended = False
        while not writer.full:
            data = await use(os.pread, fd, _CHUNK, offset)
            offset += len(data)
            if data:
                if out := await _written(writer, lines.take(data), session_yield):
                    yield out
                continue
            if watcher is None or ended:
                break
            replaced = await use(_reopen_if_replaced, files, root, path, fd)
            if replaced is not None:
                if await use(os.pread, fd, 1, offset):
                    files.drop(replaced)  # written between the read and the rename: read on here first
                    continue
                files.drop(fd)
                fd, offset, lines = replaced, 0, _Lines()
                continue
            events = await watcher.wait(pause)
            mine = [mask for name, mask in events if name == path.name]
            # The runtime closes the file when the container's output ends, shortly before it reports the exit.
            if any(mask & inotify.CLOSE_WRITE for mask in mine):
                pause = 0.01
            if not events or pause < _STATE_CHECK_SECONDS:
                ended = not await running()
                pause = min(pause * 2, _STATE_CHECK_SECONDS)
        if lines.rest and not writer.full:
            out = writer.write(bytes(lines.rest))
            if out:
                yield out


class _Lines:
    """Lines of a file that is read in pieces; a byte is copied a few times, however long its line is."""

    def __init__(self) -> None:
        self.rest = bytearray()
        """The beginning of a line whose end was not read yet."""

    def take(self, data: bytes) -> list[bytes]:
        """Return the lines that end in a piece, without newlines, and the beginning of one that is too long."""
        *whole, rest = data.split(b"\n")
        if whole and self.rest:
            whole[0] = self._taken(whole[0])
        self.rest += rest
        if len(self.rest) > LONGEST_LINE:
            whole.append(self._taken(b""))
        return whole

    def _taken(self, end: bytes) -> bytes:
        line, self.rest = bytes(self.rest + end), bytearray()
        return line


async def _written(writer: LogWriter, lines: Sequence[bytes], session_yield: SessionYield) -> bytes:
    """Return the text of lines. A line may be a few bytes and be left out, so a chunk of them yields to others many times."""
    out: list[bytes] = []
    for start in range(0, len(lines), LINES_PER_YIELD):
        await session_yield.wait()
        out += map(writer.write, lines[start : start + LINES_PER_YIELD])
    return b"".join(out)


def _open(files: LogDescriptors, root: Path, path: Path) -> int:
    fd = open_beneath(root, path)
    files.add(fd)
    return fd


def _reopen_if_replaced(files: LogDescriptors, root: Path, path: Path, fd: int) -> int | None:
    try:
        fresh = _open(files, root, path)
    except OSError:
        return None
    here, there = os.fstat(fd), os.fstat(fresh)
    if (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino):
        files.drop(fresh)
        return None
    return fresh
