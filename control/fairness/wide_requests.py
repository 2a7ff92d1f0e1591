"""Wide requests: at most one starts in each iteration of the event loop.

A long list is served from memory without any await, so concurrent lists run one after another, and nothing runs in between if
all start in one iteration: a burst of them delays every lease, although seats are free. So a wide request waits for an
iteration of its own, and between two of them the event loop polls all its sockets.
Priority levels with waiting requests are served round robin.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol


class Level(Protocol):
    """A priority level that has a wide request to begin."""

    def dispatch(self) -> None:
        """Begin what can be begun; calls `queue` again if there is more."""
        ...


class WideRequests:
    """The priority levels that wait to begin a wide request on one event loop."""

    def __init__(self) -> None:
        self._free = True
        self._queued: deque[Level] = deque()

    def reserve(self) -> bool:
        """Reserve this iteration; False if it is taken."""
        if not self._free:
            return False
        self._free = False
        asyncio.get_running_loop().call_soon(self._next)
        return True

    def queue(self, level: Level) -> None:
        """Have a level's `dispatch` called in an iteration that is free."""
        if level not in self._queued:
            self._queued.append(level)

    def _next(self) -> None:
        self._free = True
        # A level that has nothing left does not use the iteration up.
        for _ in range(len(self._queued)):
            if not self._free:
                return
            self._queued.popleft().dispatch()
