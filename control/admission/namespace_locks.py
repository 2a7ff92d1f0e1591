"""One lock for each namespace, for work that reads all quotas or limits of a namespace.

Whoever may create these objects chooses their number and sizes: one request of a namespace reads them at a time, so that
requests at once do not multiply the memory that it takes.
"""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary


class NamespaceLocks:
    """Locks by namespace."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """While a lock is held or awaited."""

    def of(self, namespace: str) -> asyncio.Lock:
        """Return the lock of a namespace."""
        lock = self._locks.get(namespace)
        if lock is None:
            lock = self._locks[namespace] = asyncio.Lock()
        return lock
