"""Finds where the last lines of a log begin, from its end backwards in pieces.

A log may have any size, since it is rotated only each `containerLogMonitorInterval`, and a client may request more lines
than it has. So a search is many short calls, between which others read and the client may disconnect.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from agent.server.log_threads import InThread

PIECE = 1 << 20
"""Bytes that one call searches at most."""
_BLOCK = 32 << 10


async def tail_offset(fd: int, lines: int, in_thread: InThread) -> int:
    """Return where the last so many lines of a file begin; 0 for a negative number. Raise OSError."""
    if lines < 0:
        return 0
    search = await in_thread(_begin, fd, lines)
    while (offset := await in_thread(search.search_piece)) is None:
        pass
    return offset


def _begin(fd: int, lines: int) -> _Search:
    end = os.fstat(fd).st_size
    # A last line without its newline is a line too.
    ends_line = end > 0 and os.pread(fd, 1, end - 1) == b"\n"
    return _Search(fd, end, lines + 1 if ends_line else lines, lines == 0)


@dataclass(slots=True)
class _Search:
    fd: int
    position: int
    """Offset of the searched part of the file."""
    missing: int
    """Newlines to find before it."""
    at_end: bool
    """No line is wanted."""

    def search_piece(self) -> int | None:
        """Search the piece before the position; return the offset once it is known."""
        least = max(0, self.position - PIECE)
        while self.position > least and not self.at_end:
            start = max(least, self.position - _BLOCK)
            block = os.pread(self.fd, self.position - start, start)
            count = block.count(b"\n")
            if count >= self.missing:
                return start + self._begin_of_lines(block)
            self.missing -= count
            self.position = start
        return self.position if self.position == 0 or self.at_end else None

    def _begin_of_lines(self, block: bytes) -> int:
        at = len(block)
        for _ in range(self.missing):
            at = block.rfind(b"\n", 0, at)
        return at + 1
