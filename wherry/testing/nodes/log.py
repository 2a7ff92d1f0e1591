"""The log of a simulated container: lines in CRI's format, and readers that wait for more."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Literal

from agent.server.log_lines import parse
from kube.clock import format_micro_time

StreamName = Literal["stdout", "stderr"]
MOST_BYTES = 10 << 20
"""Bytes of a log that are kept, as of a kubelet's newest log file; the oldest lines go first."""


class ContainerLog:
    """The lines that one instance of a container has written."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._dropped = self._size = 0
        self._readers: set[asyncio.Future[None]] = set()
        self.closed = False
        """The container has ended: nothing is added any more."""

    def write(self, text: str, moment: datetime, stream: StreamName = "stdout") -> None:
        """Add lines; the last one needs no newline."""
        head = f"{format_micro_time(moment)} {stream} F ".encode()
        lines = [head + line for line in text.removesuffix("\n").encode().split(b"\n")] if text else []
        self._lines.extend(lines)
        self._size += sum(map(len, lines))
        while self._size > MOST_BYTES and len(self._lines) > 1:
            self._size -= len(self._lines.popleft())
            self._dropped += 1
        self._wake()

    def close(self) -> None:
        """End the log with its container."""
        self.closed = True
        self._wake()

    def text(self) -> str:
        """Return everything that was written to both streams."""
        return b"".join(parse(line).text for line in self._lines).decode("utf-8", "replace")

    def lines(self) -> list[bytes]:
        """Return the lines that are kept, for `restore`."""
        return list(self._lines)

    def restore(self, lines: list[bytes], *, closed: bool) -> None:
        """Give a new log the lines that `lines` returned."""
        self._lines, self._size = deque(lines), sum(map(len, lines))
        self.closed = closed

    @property
    def end(self) -> int:
        """Position behind the last line."""
        return self._dropped + len(self._lines)

    def tail(self, lines: int) -> int:
        """Return the position of the last so many lines, of the first one that is kept for a negative number."""
        return self._dropped if lines < 0 else max(self._dropped, self.end - lines)

    def after(self, position: int, most: int) -> tuple[Sequence[bytes], int]:
        """Return at most so many lines from a position on, and the next position."""
        start = max(0, position - self._dropped)
        lines = list(islice(self._lines, start, start + most))
        return lines, self._dropped + start + len(lines)

    async def changed(self) -> None:
        """Wait until something is added, or the log ends."""
        if self.closed:
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._readers.add(waiting)
        try:
            await waiting
        finally:
            self._readers.discard(waiting)

    def _wake(self) -> None:
        for waiting in self._readers:
            if not waiting.done():
                waiting.set_result(None)
