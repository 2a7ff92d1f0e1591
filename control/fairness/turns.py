"""Turns: at most one wide request is begun in each turn of the event loop.

A long list is served from memory without waiting for anything, so however many of them run "at once", they run one after
another, and nothing else runs in between if all are begun in one turn: a storm of them blocks every lease, although no
seat is ever taken. So a wide request waits for a turn of its own, and between two of them the loop looks at all its sockets.
Priority levels with waiting requests are served round robin.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol


class Waiting(Protocol):
    """A priority level that wants a turn."""

    def dispatch(self) -> None:
        """Begin what can be begun; asks for a turn again if there is more."""
        ...


class Turns:
    """The turns of one event loop."""

    def __init__(self) -> None:
        self._free = True
        self._wanted: deque[Waiting] = deque()

    def take(self) -> bool:
        """Take this turn, if nobody has yet."""
        if not self._free:
            return False
        self._free = False
        asyncio.get_running_loop().call_soon(self._next)
        return True

    def want(self, level: Waiting) -> None:
        """Have a level's `dispatch` called when it may take a turn."""
        if level not in self._wanted:
            self._wanted.append(level)

    def _next(self) -> None:
        self._free = True
        # A level that has nothing left does not use its turn up.
        for _ in range(len(self._wanted)):
            if not self._free:
                return
            self._wanted.popleft().dispatch()
