"""List and watch of a resource of the watch cache inside the server: all objects, then every change, until cancelled.

After the end of a watch (the cache restarted, or a value cannot be decrypted) the resource is listed again.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence

import msgspec

from control.storage.cache import WatchCache
from control.storage.resource_cache import ResourceCache
from control.storage.store import Compacted, StoreError
from control.storage.watcher import WatchEvent

log = logging.getLogger(__name__)
FIRST_RETRY, LAST_RETRY = 0.1, 5.0
"""Seconds before the first retry, and the maximum."""


class Update(msgspec.Struct, frozen=True):
    """Changes in order. With `is_list` they are all objects, as ADDED, and replace the ones known before."""

    watch_events: Sequence[WatchEvent]
    is_list: bool = False


async def list_and_watch(cache: WatchCache, resource: ResourceCache) -> AsyncGenerator[Update, None]:
    """Yield updates until closed or cancelled. A resource that cannot be listed is retried."""
    delay = FIRST_RETRY
    while True:
        try:
            await cache.wait_ready()
            page = resource.list()
            watcher = resource.watch(page.revision)
            try:
                yield Update([WatchEvent("ADDED", entry) for entry in page.entries], is_list=True)
                async for watch_events in watcher:
                    delay = FIRST_RETRY
                    yield Update([watch_event for watch_event in watch_events if watch_event.type != "BOOKMARK"])
            finally:
                await watcher.aclose()
        except Compacted:
            delay = FIRST_RETRY
        except StoreError as error:
            log.warning("cannot watch %s: %s", resource.prefix, error)
        await cache.clock.sleep(delay)
        delay = min(delay * 2, LAST_RETRY)
