"""Keys with a time to live, ordered by expiry.

The database stores the wall-clock time at which a key expires, which stays valid across restarts. In memory the boot clock is
used: a step of the wall clock neither expires keys early nor keeps them longer.
"""

from __future__ import annotations

import heapq

from kube.clock import SYSTEM, Clock

LONGEST = 3600.0


class Expiries:
    """The keys with a time to live. An entry whose key has been written again is stale."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._heap: list[tuple[float, str, int]] = []

    def add(self, key: str, revision: int, expires: float) -> None:
        """Add a key that expires at a wall-clock time in seconds if it is still at this revision then."""
        heapq.heappush(self._heap, (self._clock.boottime() + expires - self._clock.now().timestamp(), key, revision))

    def clear(self) -> None:
        self._heap.clear()

    def until_next(self) -> float:
        """Return the seconds until the next key expires, at most an hour."""
        first = next(iter(self._heap), None)  # the event loop calls this while the writer's thread changes the heap
        return min(max(first[0] - self._clock.boottime(), 0.0), LONGEST) if first is not None else LONGEST

    def pop_expired(self) -> tuple[str, int] | None:
        """Remove and return an expired key and its revision; None if there is none."""
        if not self._heap or self._heap[0][0] > self._clock.boottime():
            return None
        _, key, revision = heapq.heappop(self._heap)
        return key, revision
