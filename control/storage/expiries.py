"""Keys with a time to live, ordered by expiry.

The database stores the wall-clock time at which a key expires, which stays valid across restarts. In memory the boot clock is
used: a step of the wall clock neither expires keys early nor keeps them longer.
"""

from __future__ import annotations

import heapq
import time


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Expiries:
    """The keys with a time to live. An entry whose key has been written again is stale."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str, int]] = []

    def add(self, key: str, revision: int, expires: float) -> None:
        """Add a key that expires at a wall-clock time in seconds if it is still at this revision then."""
        heapq.heappush(self._heap, (_boottime() + expires - time.time(), key, revision))

    def clear(self) -> None:
        self._heap.clear()

    def until_next(self) -> float | None:
        """Return the seconds until the next key expires, at most an hour; None if no key has a time to live."""
        return min(max(self._heap[0][0] - _boottime(), 0.0), 3600.0) if self._heap else None

    def pop_expired(self) -> tuple[str, int] | None:
        """Remove and return an expired key and its revision; None if there is none."""
        if not self._heap or self._heap[0][0] > _boottime():
            return None
        _, key, revision = heapq.heappop(self._heap)
        return key, revision
