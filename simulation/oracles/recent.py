"""Recent values of objects, on which a controller whose copy is a little behind may act."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
BEHIND_SECONDS = 60.0
"""Time by which the copy of a leader may be behind, if messages are slow."""
MOST_VALUES = 50


class Recent(Generic[K, V]):
    """Values by key, each with the time until which it was the newest."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._values: dict[K, deque[tuple[float, V]]] = {}
        """The time at which a value became the newest."""

    def set(self, key: K, value: V) -> None:
        """Record a value."""
        values = self._values.setdefault(key, deque(maxlen=MOST_VALUES))
        if not values or values[-1][1] != value:
            values.append((self._now(), value))

    def of(self, key: K, seconds: float = BEHIND_SECONDS) -> list[V]:
        """Return the values that were the newest at some moment of the last seconds."""
        found: list[V] = []
        since = self._now() - seconds
        for at, value in reversed(self._values.get(key, ())):
            found.append(value)
            if at <= since:
                break
        return found

    def forget(self, key: K) -> None:
        """Drop the values of a key."""
        self._values.pop(key, None)
