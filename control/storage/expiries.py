"""Keys with a time to live, ordered by its end.

The database holds the wall-clock time at which a key ends, which stays true across restarts. In memory the boot clock counts:
a step of the wall clock neither removes keys early nor keeps them longer.
"""

from __future__ import annotations

import heapq
import time


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Expiries:
    """The keys of one writer that have a time to live; an entry whose key was written again since is stale."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str, int]] = []

    def add(self, key: str, revision: int, expires: float) -> None:
        """Note that a key ends at a wall-clock time in seconds, if it is still at this revision then."""
        heapq.heappush(self._heap, (_boottime() + expires - time.time(), key, revision))

    def clear(self) -> None:
        self._heap.clear()

    def until_next(self) -> float | None:
        """Return the seconds until the next key ends, an hour at most; None where none has a time to live."""
        return min(max(self._heap[0][0] - _boottime(), 0.0), 3600.0) if self._heap else None

    def due(self) -> tuple[str, int] | None:
        """Remove and return a key whose time is over, with its revision; None where there is none."""
        if not self._heap or self._heap[0][0] > _boottime():
            return None
        _, key, revision = heapq.heappop(self._heap)
        return key, revision
