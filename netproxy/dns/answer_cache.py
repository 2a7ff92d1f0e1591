"""LRU cache of encoded answers, bounded by entries and bytes.

A client chooses what it requests, so what it fills is bounded, and names that others request all the time stay.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Hashable
from typing import Generic, TypeVar

from netproxy.dns.reply import Body

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
OVERHEAD = 500
"""Bytes that an entry takes beside what it holds: objects, and places in tables."""


class BoundedCache(Generic[K, V]):
    """A mapping bounded by entries and bytes."""

    def __init__(self, entries: int, size: int) -> None:
        self._entries, self._max_size = entries, size
        self._answers: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.size = 0

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: K) -> V | None:
        found = self._answers.get(key)
        if found is None:
            return None
        self._answers.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Keep a value of so many bytes in place of others; not where it is too large for that."""
        self.drop(key)
        size += OVERHEAD
        if size > self._max_size:
            return
        while len(self._answers) >= self._entries or self.size + size > self._max_size:
            self.drop(next(iter(self._answers)))
        self._answers[key] = value, size
        self.size += size

    def drop(self, key: K) -> V | None:
        """Remove an entry and return its value; None if there is none."""
        found = self._answers.pop(key, None)
        if found is None:
            return None
        self.size -= found[1]
        return found[0]


Key = tuple[bytes, int, int]
"""The name in lower case, the type, and the room for records: everything that an answer of the zone depends on."""


class CachedAnswer:
    """An answer's bytes, the Service ("namespace/name") that it is about, and how often it was given."""

    __slots__ = ("about", "body", "rotation")

    def __init__(self, body: Body, about: str) -> None:
        self.body, self.about, self.rotation = body, about, 0


class AnswerCache(BoundedCache[Key, CachedAnswer]):
    """Answers of the zone, dropped when their Service changes."""

    def __init__(self, entries: int, size: int) -> None:
        super().__init__(entries, size)
        self._about: defaultdict[str, set[Key]] = defaultdict(set)

    def store(self, key: Key, body: Body, about: str) -> None:
        self.put(key, CachedAnswer(body, about), len(key[0]) + len(body.answers) + len(body.others))
        if key in self._answers:
            self._about[about].add(key)

    def forget(self, about: str) -> None:
        """Drop what is about a Service."""
        for key in tuple(self._about.get(about, ())):
            self.drop(key)

    def drop(self, key: Key) -> CachedAnswer | None:
        found = super().drop(key)
        if found is not None:
            keys = self._about[found.about]
            keys.discard(key)
            if not keys:
                del self._about[found.about]
        return found
