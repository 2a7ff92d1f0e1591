"""Exponential back-off by key, in upstream's form (client-go flowcontrol.Backoff); the caller passes the time.

The first failure creates an entry without a wait; from the second on, the key waits for the entry's delay. An entry
that was not updated for twice the longest delay (10 minutes by default) counts as new.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class _Entry(msgspec.Struct):
    delay: float
    updated: float


class BackOff:
    """Delays that double from `first` to `last` seconds."""

    def __init__(self, first: float = 10.0, last: float = 300.0) -> None:
        self._first, self._last = min(first, last), last
        self._entries: dict[str, _Entry] = {}

    def delay(self, key: str) -> float:
        """Return the key's current delay in seconds, 0 if it has none."""
        entry = self._entries.get(key)
        return entry.delay if entry else 0.0

    def ready_at(self, key: str, failed_at: float) -> float:
        """Return the time from which the key may be retried after a failure at `failed_at`."""
        entry = self._entries.get(key)
        if entry is None or self._expired(entry, failed_at):
            return failed_at
        return failed_at + entry.delay

    def ready_at_since_update(self, key: str, now: float) -> float:
        """Return the time from which the key may be retried, counted from its last failure."""
        entry = self._entries.get(key)
        if entry is None or self._expired(entry, now):
            return now
        return entry.updated + entry.delay

    def next(self, key: str, at: float) -> float:
        """Count a failure at a time; return the new delay."""
        entry = self._entries.get(key)
        if entry is None or self._expired(entry, at):
            entry = self._entries[key] = _Entry(self._first, at)
        else:
            entry.delay = min(entry.delay * 2, self._last)
            entry.updated = at
        return entry.delay

    def saved(self, now: float) -> dict[str, tuple[float, float]]:
        """Return the delay of each key and the seconds since its last failure, for `restore`."""
        return {key: (entry.delay, now - entry.updated) for key, entry in self._entries.items()}

    def restore(self, saved: Mapping[str, tuple[float, float]], now: float) -> None:
        """Make the delays those that `saved` returned, by a clock that may have another beginning."""
        self._entries = {key: _Entry(delay, now - age) for key, (delay, age) in saved.items()}

    def reset(self, key: str) -> None:
        self._entries.pop(key, None)

    def collect(self, now: float) -> None:
        """Remove expired keys."""
        for key in [key for key, entry in self._entries.items() if self._expired(entry, now)]:
            del self._entries[key]

    def _expired(self, entry: _Entry, now: float) -> bool:
        return now - entry.updated > self._last * 2
