"""Priority levels whose requests wait because no seats could be borrowed; they are tried whenever a level gives seats back.

Without this a level's requests would wait until one of its own is over, although the rest of the server is idle. The level
that was seated last is tried last.
"""

from __future__ import annotations

from typing import Protocol


class Level(Protocol):
    """A priority level that found no seats."""

    dispatched: int

    def dispatch(self) -> None:
        """Seat those who can be seated; adds itself again if there is more."""
        ...


class WaitingLevels:
    """The levels of one server, in the order in which they are tried."""

    def __init__(self) -> None:
        self._levels: dict[Level, None] = {}

    def add(self, level: Level) -> None:
        """Have a level tried when seats are given back."""
        self._levels.setdefault(level)

    def dispatch(self) -> None:
        """Try all of them: there may be seats."""
        if not self._levels:
            return
        levels, self._levels = self._levels, {}
        seated = []
        for level in levels:
            before = level.dispatched
            level.dispatch()
            if level.dispatched != before:
                seated.append(level)
        for level in seated:
            if level in self._levels:
                del self._levels[level]
                self._levels[level] = None
