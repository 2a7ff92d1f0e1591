"""The trace of a run: everything that happened, as a hash and, for reading, as lines."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from control.storage.memory import MemoryStore
from control.storage.memory_rows import Row

SHOWN = 4000
"""Lines that are kept."""


class Trace:
    """Writes of the store and faults, in order."""

    def __init__(self, store: MemoryStore, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._hash = hashlib.sha256()
        self.lines: list[str] = []
        self.writes = self.entries = 0
        store.subscribe(self._written)

    def add(self, actor: str, text: str, secret: bytes = b"") -> None:
        """Add an entry; `secret` is a part that only the hash has."""
        line = f"{self._seconds():14.6f} {actor:12} {text}"
        self._hash.update(line.encode() + secret)
        self.entries += 1
        self.lines.append(line)
        if len(self.lines) > 2 * SHOWN:
            del self.lines[:SHOWN]

    def digest(self) -> str:
        """Return the hash of all entries."""
        return self._hash.hexdigest()

    def _written(self, row: Row) -> None:
        self.writes += 1
        kind = "deleted" if row.deleted else "created" if row.before is None or row.before.deleted else "updated"
        self.add("store", f"{row.item.revision} {kind} {row.item.key}", row.item.value)
