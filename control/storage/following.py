"""Follow one resource of the watch cache inside the server: all objects first, then every change, until it is cancelled.

A follower lists again after whatever ends a watch: the cache started over, or a value cannot be decrypted.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from control.storage.cache import WatchCache
from control.storage.resource_cache import ResourceCache
from control.storage.store import Compacted, StoreError
from control.storage.watcher import Notice

log = logging.getLogger(__name__)
FIRST_RETRY, LAST_RETRY = 0.1, 5.0
"""Seconds before the first and the later tries."""


@dataclass(frozen=True, slots=True)
class Update:
    """Changes in order. With `whole` they are all present objects, as ADDED, and replace what was known before."""

    notices: Sequence[Notice]
    whole: bool = False


async def follow(cache: WatchCache, resource: ResourceCache) -> AsyncGenerator[Update, None]:
    """Yield updates until closed or cancelled. A resource that cannot be listed is retried."""
    delay = FIRST_RETRY
    while True:
        try:
            await cache.wait_ready()
            page = resource.list()
            watcher = resource.watch(page.revision)
            try:
                yield Update([Notice("ADDED", entry) for entry in page.entries], whole=True)
                async for notices in watcher:
                    delay = FIRST_RETRY
                    yield Update([notice for notice in notices if notice.type != "BOOKMARK"])
            finally:
                await watcher.aclose()
        except Compacted:
            delay = FIRST_RETRY
        except StoreError as error:
            log.warning("cannot follow %s: %s", resource.prefix, error)
        await cache.clock.sleep(delay)
        delay = min(delay * 2, LAST_RETRY)
