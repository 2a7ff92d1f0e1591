"""Ring buffer of a resource's recent changes, from which watches that reconnect continue."""

from __future__ import annotations

from collections import deque

from control.storage.watcher import Change
from kube.clock import Clock

MOST_CHANGES = 2048
MOST_BYTES = 32 << 20
"""Maximum bytes of changed objects. Their encoded events need as much again."""
KEPT_SECONDS = 30.0
"""Time that a change is kept, which suffices for reconnecting clients. Older ones are replayed from the store."""


class RecentChanges:
    """The changes after the revision `floor`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changes: deque[Change] = deque()
        self._bytes = 0
        self.floor = 0

    def after(self, revision: int, prefix: str) -> list[Change]:
        """Return the changes of a folder after a revision that is not below `floor`."""
        return [change for change in self._changes if change.revision > revision and change.within(prefix)]

    def clear(self, floor: int) -> None:
        """Drop all changes; those after `floor` will be added."""
        self._changes.clear()
        self.floor = floor

    def append(self, change: Change) -> None:
        """Add a change; drop the oldest ones beyond the limits."""
        changes = self._changes
        self._bytes = change.size + (self._bytes if changes else 0)
        changes.append(change)
        while len(changes) > MOST_CHANGES or self._bytes > MOST_BYTES:
            self._drop_oldest()
        self.drop_old()

    def _drop_oldest(self) -> None:
        change = self._changes.popleft()
        self.floor = change.revision
        self._bytes -= change.size

    def drop_old(self) -> None:
        """Drop changes older than KEPT_SECONDS; watches from before them are replayed from the store."""
        changes, oldest = self._changes, self._clock.monotonic() - KEPT_SECONDS
        while changes and changes[0].at < oldest:
            self._drop_oldest()
