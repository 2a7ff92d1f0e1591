"""Keys that wait for workers, in round robin over their owners, of which each has a limited number of workers at a time.

An owner with many keys, or with some that take long, delays others by one key for each worker at most, and the workers above
its limit stay free for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class RoundRobin(Generic[K]):
    """Distinct keys. It is true while there is a key for a worker; the length counts those of owners without another worker."""

    def __init__(self, owner: Callable[[K], str], each: int = 1) -> None:
        self._owner, self._each = owner, each
        self._ready: dict[str, deque[K]] = {}
        """By owners that may have another worker, in the order of their turns; none is empty."""
        self._blocked: dict[str, deque[K]] = {}
        """By owners that have all their workers; none is empty."""
        self._workers: dict[str, int] = {}
        """By owner, without zeros."""
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
        self._waiting(owner).setdefault(owner, deque()).append(key)
        self._length += 1

    def popleft(self) -> K:
        """Remove and return the key whose turn it is, for a worker, and put its owner behind all others."""
        owner = next(iter(self._ready))
        keys = self._ready.pop(owner)
        key = keys.popleft()
        self._owners[key] = owner
        self._workers[owner] = self._workers.get(owner, 0) + 1
        self._length -= 1
        if keys:
            self._waiting(owner)[owner] = keys
        return key

    def release(self, key: K) -> None:
        """Take a worker from the owner of a key, which may have another one then, behind all others that wait."""
        owner = self._owners.pop(key)
        self._workers[owner] -= 1
        if not self._workers[owner]:
            del self._workers[owner]
        if keys := self._blocked.pop(owner, None):
            self._ready[owner] = keys

    def _waiting(self, owner: str) -> dict[str, deque[K]]:
        return self._ready if self._workers.get(owner, 0) < self._each else self._blocked
