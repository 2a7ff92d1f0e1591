"""Rate limit for additions of a node's addresses: each changes the status of every Service, which every node reads.

Removals are never delayed. After some additions in a minute, further addresses of the node are added once the minute is over.
"""

from __future__ import annotations

from collections import deque

ADDITIONS, ADDITION_SECONDS = 3, 60.0
"""Maximum number of times that addresses of a node are added, within so many seconds."""


class AdditionLimit:
    """The last additions of each node, also of one that is gone: it may be created again."""

    def __init__(self) -> None:
        self._times: dict[str, deque[float]] = {}

    def wait(self, node: str, now: float) -> float:
        """Return the seconds until addresses of a node may be added; count an addition if that is 0."""
        times = self._times.setdefault(node, deque(maxlen=ADDITIONS))
        if len(times) == ADDITIONS and (seconds := times[0] + ADDITION_SECONDS - now) > 0:
            return seconds
        times.append(now)
        return 0.0

    def forget_old(self, now: float) -> None:
        """Drop the nodes without an addition that counts."""
        for node in [node for node, times in self._times.items() if times[-1] + ADDITION_SECONDS <= now]:
            del self._times[node]
