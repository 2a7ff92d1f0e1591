"""Cache of the API server's answers, each with an expiry of its own."""

from __future__ import annotations

from typing import Generic, TypeVar

from kube.clock import Clock

K = TypeVar("K")
V = TypeVar("V")


class ExpiringCache(Generic[K, V]):
    """At most `limit` entries; the oldest written goes first."""

    def __init__(self, clock: Clock, limit: int = 4096) -> None:
        self._clock = clock
        self._limit = limit
        self._entries: dict[K, tuple[float, V]] = {}

    def get(self, key: K) -> tuple[V | None, bool]:
        """Return the value and True, or None and False."""
        entry = self._entries.get(key)
        if entry is None:
            return None, False
        if entry[0] <= self._clock.monotonic():
            del self._entries[key]
            return None, False
        return entry[1], True

    def put(self, key: K, value: V, seconds: float) -> None:
        """Cache a value for so many seconds."""
        self._entries.pop(key, None)
        if len(self._entries) >= self._limit:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (self._clock.monotonic() + seconds, value)
