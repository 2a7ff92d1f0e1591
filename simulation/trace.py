"""The trace of a run: everything that happened, as a hash and, if somebody reads it, as a timeline."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from control.storage.memory import MemoryStore
from control.storage.memory_rows import Row
from simulation.origin import ORIGIN
from simulation.timeline import Timeline


class Trace:
    """Requests of users, writes of the store, faults and what observers receive, in order."""

    def __init__(self, store: MemoryStore, seconds: Callable[[], float], timeline: Timeline | None = None) -> None:
        self._seconds, self._timeline = seconds, timeline
        self._hash = hashlib.sha256()
        self.writes = self.entries = 0
        store.subscribe(self._written)

    def add(self, actor: str, text: str) -> None:
        """Add an entry that the timeline shows."""
        self.count(f"{actor} {text}".encode())
        if self._timeline is not None:
            self._timeline.add(self._seconds(), actor, text)

    def count(self, entry: bytes) -> None:
        """Add an entry to the hash only."""
        self._hash.update(b"%f " % self._seconds() + entry)
        self.entries += 1

    def digest(self) -> str:
        """Return the hash of all entries."""
        return self._hash.hexdigest()

    def _written(self, row: Row) -> None:
        self.writes += 1
        item, origin = row.item, ORIGIN.get()
        actor = origin.actor if origin is not None else ""
        self.count(f"{actor} {item.revision} {item.key} {row.deleted} ".encode() + item.value)
        if self._timeline is not None:
            self._timeline.written(self._seconds(), row)
