"""Cache of the responses of webhooks: at most so many, each with a time to live of its own, kept by digests."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from kube.clock import Clock

T = TypeVar("T")


class ResponseCache(Generic[T]):
    """Keeps `limit` answers; those that were not used for longest go first.

    A key is a digest: clients make what is asked as long as they like. Answers are short.
    """

    def __init__(self, clock: Clock, limit: int) -> None:
        self._clock, self._limit = clock, limit
        self._kept: OrderedDict[bytes, tuple[float, T]] = OrderedDict()

    def get(self, key: bytes) -> T | None:
        """Return an answer, None if it is not known or too old."""
        found = self._kept.get(key)
        if found is None:
            return None
        if found[0] <= self._clock.monotonic():
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return found[1]

    def clear(self) -> None:
        """Forget all answers."""
        self._kept.clear()

    def put(self, key: bytes, answer: T, seconds: float) -> None:
        """Keep an answer for some seconds; 0: not at all."""
        if seconds <= 0:
            return
        self._kept[key] = (self._clock.monotonic() + seconds, answer)
        self._kept.move_to_end(key)
        if len(self._kept) > self._limit:
            self._kept.popitem(last=False)
