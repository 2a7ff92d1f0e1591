"""Reads a container's log file: CRI's line format, the options of `kubectl logs`, and following.

A line is `TIME stdout|stderr F|P text`; P means that the text continues in the next line of the same stream (the runtime cuts
at 16 KiB). inotify, not a timer, wakes a reader that follows; a file that was renamed by rotation is read to its end before
the new one is opened. Files are opened component by component without following links: a container must not be able to point
its log at another file of the host.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import ParamSpec, TypeVar

from agent.server.log_descriptors import LogDescriptors
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Options of reading a log; `since` in nanoseconds of Unix time, negative numbers mean no limit."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    since: int = -1
    tail_lines: int = -1
    limit_bytes: int = -1
    stream: str = "All"


class LogFormatError(ValueError):
    """A line is not in CRI's format."""


@dataclass(frozen=True, slots=True)
class Line:
    """One entry: the time as written, the stream, the text with its newline unless it continues."""

    time: bytes
    stream: bytes
    text: bytes


def parse(raw: bytes) -> Line:
    """Read one line, without or with its newline. Raise LogFormatError."""
    parts = raw.rstrip(b"\n").split(b" ", 3)
    if len(parts) < 3 or parts[1] not in (b"stdout", b"stderr"):
        raise LogFormatError(f"not in the CRI log format: {raw[:200]!r}")
    text = parts[3] if len(parts) == 4 else b""
    # The third column is a list of tags separated by colons; the first is whether the line is complete.
    return Line(parts[0], parts[1], text if parts[2].partition(b":")[0] == b"P" else text + b"\n")


def nanoseconds(time: bytes) -> int:
    """Read an RFC 3339 time with any number of decimals. Raise LogFormatError."""
    text = time.decode("ascii", "replace")
    whole, dot, rest = text.partition(".")
    digits = rest.rstrip("Z") if dot else ""
    zone = "Z" if text.endswith("Z") else ""
    if dot and not zone:
        cut = max(rest.find("+"), rest.find("-"))
        digits, zone = rest[:cut], rest[cut:]
    try:
        moment = datetime.fromisoformat(whole + zone if dot else text)
        return int(moment.timestamp()) * 1_000_000_000 + int((digits or "0").ljust(9, "0")[:9])
    except ValueError as error:
        raise LogFormatError(f"not a time: {text!r}") from error


def fixed_time(time: bytes) -> bytes:
    """Write a time with all nine decimals, as `--timestamps` prints them."""
    head, dot, rest = time.partition(b".")
    zone_at = next((i for i, byte in enumerate(rest) if byte in b"Z+-"), len(rest)) if dot else 0
    if not dot:
        head, zone = (time[:19], time[19:])
        return head + b".000000000" + zone
    return head + b"." + rest[:zone_at].ljust(9, b"0") + rest[zone_at:]


class LogWriter:
    """Turns entries into the bytes to send, counting what was sent against the limit."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._left = options.limit_bytes
        self._at_line_start = True
        self._since_reached = options.since < 0

    @property
    def full(self) -> bool:
        """Return whether the limit has been reached."""
        return self._options.limit_bytes >= 0 and self._left <= 0

    def write(self, raw: bytes) -> bytes:
        """Return what a raw line contributes; empty when the options leave it out or it is malformed."""
        try:
            line = parse(raw)
            if not self._since_reached:
                if nanoseconds(line.time) < self._options.since:
                    return b""
                self._since_reached = True
        except LogFormatError:
            return b""
        if self._options.stream != "All" and line.stream != self._options.stream.lower().encode():
            return b""
        text = line.text
        if self._options.timestamps and self._at_line_start:
            text = fixed_time(line.time) + b" " + text
        self._at_line_start = line.text.endswith(b"\n")
        if self._options.limit_bytes >= 0:
            text = text[: self._left]
            self._left -= len(text)
        return text


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
