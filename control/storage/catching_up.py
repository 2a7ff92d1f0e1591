"""Health check: the watch cache has caught up after the store was unavailable.

After an outage the store may answer long before the cache's watch continues, and consistent reads time out until then. So a
server is ready again only when its cache has the store's current revision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from control.storage.cache import WatchCache
from control.storage.store import StoreError

PAUSE = 0.2


class CatchingUp:
    """A readiness check; `trouble` returns the store's error, None if it works."""

    def __init__(self, cache: WatchCache, trouble: Callable[[], str | None]) -> None:
        self._cache, self._trouble = cache, trouble
        self._behind = asyncio.Event()

    def check(self) -> str | None:
        """Return why reads would fail; None if they succeed."""
        if not self._cache.ready:
            return "the watch cache is not filled"
        if self._trouble() is not None:
            self._behind.set()
        return "the watch cache is catching up with the store" if self._behind.is_set() else None

    async def run(self) -> None:
        """After each outage wait until the cache has the store's current revision; runs until cancelled."""
        while True:
            await self._behind.wait()
            try:
                await self._cache.wait_current()
            except StoreError:
                await self._cache.clock.sleep(PAUSE)
                continue
            if self._trouble() is None:
                self._behind.clear()
            else:
                await self._cache.clock.sleep(PAUSE)
