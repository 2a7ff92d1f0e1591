"""Keys that wait for workers, in round robin over their owners, of which each has one worker at a time.

An owner with many keys, or with some that take long, delays others by one key for each worker at most, and the other workers
stay free for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class RoundRobin(Generic[K]):
    """Distinct keys. It is true while there is a key for a worker; its length includes keys whose owners have a worker."""

    def __init__(self, owner: Callable[[K], str]) -> None:
        self._owner = owner
        self._ready: dict[str, deque[K]] = {}
        """By owners without a worker, in the order of their turns; none is empty."""
        self._blocked: dict[str, deque[K]] = {}
        """By owners that have a worker."""
        self._owners: dict[K, str] = {}
        """Owners of the keys that workers have: these may have others meanwhile."""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __bool__(self) -> bool:
        return bool(self._ready)

    def append(self, key: K) -> None:
        """Add a key behind its owner's others."""
        owner = self._owner(key)
        keys = self._blocked.get(owner)
        if keys is None:
            keys = self._ready.setdefault(owner, deque())
        keys.append(key)
        self._length += 1

    def popleft(self) -> K:
        """Remove and return the key whose turn it is; its owner has none until it is released."""
        owner = next(iter(self._ready))
        keys = self._blocked[owner] = self._ready.pop(owner)
        key = keys.popleft()
        self._owners[key] = owner
        self._length -= 1
        return key

    def release(self, key: K) -> None:
        """Put the owner of a key behind all others."""
        owner = self._owners.pop(key)
        if keys := self._blocked.pop(owner):
            self._ready[owner] = keys
