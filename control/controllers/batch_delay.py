"""Delay before a large object is reconciled again after one of its pods has changed.

Each look at a ReplicaSet, or at a Service, goes through all of its pods, and through the Service's ports. Thousands of pods
that become ready one after the other would cost the square of their number: beyond some hundreds they are taken together, as
many as change in a moment.
"""

from __future__ import annotations

MANY, SECONDS_PER_ITEM = 200, 50e-6
"""Pods and ports that are no trouble; seconds that are waited for each where there are more."""


class BatchDelay:
    """The sizes of things, by key."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}

    def record(self, key: str, size: int) -> None:
        """Store the number of an object's pods and ports."""
        self._sizes[key] = size

    def forget(self, key: str) -> None:
        self._sizes.pop(key, None)

    def wait(self, key: str) -> float:
        """Return the seconds to wait, with whatever changes meanwhile."""
        size = self._sizes.get(key, 0)
        return size * SECONDS_PER_ITEM if size > MANY else 0.0
