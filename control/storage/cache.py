"""The watch cache: every resource's objects in memory, kept current by one watch of the store.

One watch over /registry/ feeds all resources, so there is one order of events and one revision that says how fresh
everything is; a batch from the store reaches all watchers in the same turn of the event loop. Reads that must not be
stale ask the store for its revision and wait until the cache has come that far (`wait_current`, `wait_fresh`).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable
from contextlib import aclosing

from control.storage.entry import Fields
from control.storage.resource_cache import ResourceCache
from control.storage.store import Compacted, Event, FutureRevision, Item, Store, StoreError, Unavailable
from kube.clock import SYSTEM, Clock

log = logging.getLogger(__name__)

ROOT = "/registry/"
PAGE = 2000
BOOKMARK_SECONDS = 60.0
FORGET_SECONDS = 5.0
"""Between removals of changes that are older than RING_SECONDS: after a load no further change would remove them."""
REREAD_SECONDS = 3.0
"""How often values that could not be decrypted are read again: upstream asks a plugin that failed every three seconds."""
FRESH_SECONDS = 3.0
"""Seconds that a read waits for a revision until it fails as too large, as upstream does."""


class WatchCache:
    """Give it its resources, then `run` it; `wait_ready` returns when the first listing is in."""

    def __init__(self, store: Store, clock: Clock = SYSTEM) -> None:
        self.store, self.clock = store, clock
        self.revision = 0
        self._resources: dict[str, ResourceCache] = {}
        self._loading: dict[str, list[Event]] = {}
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = itertools.count()
        self._starts = 0
        self._ready = asyncio.Event()
        self._request_progress: Callable[[], None] = lambda: None

    def resource(self, prefix: str, kind: str, api_version: str, fields: Fields = lambda obj: {}) -> ResourceCache:
        """Register a resource before `run`; `prefix` is its folder, for example "/registry/pods/"."""
        cache = ResourceCache(self.store, prefix, kind, api_version, fields, lambda: self.revision, self.clock)
        self._resources[prefix] = cache
        return cache

    async def add_resource(
        self, prefix: str, kind: str, api_version: str, fields: Fields = lambda obj: {}
    ) -> ResourceCache:
        """Register a resource while running, and load what the store has of it."""
        await self._ready.wait()
        while True:
            start = self._starts
            cache = ResourceCache(self.store, prefix, kind, api_version, fields, lambda: self.revision, self.clock)
            late: list[Event] = []
            self._loading[prefix] = late
            try:
                page = await self.store.list(prefix, revision=self.revision)
            except Compacted:
                continue
            finally:
                del self._loading[prefix]
            if start != self._starts:
                continue  # the cache started over meanwhile: `late` may have a gap
            cache.load(page.items, page.revision)
            for event in late:
                cache.apply(event)
            self._resources[prefix] = cache
            return cache

    def remove_resource(self, prefix: str) -> None:
        """Forget a resource and end its watches."""
        cache = self._resources.pop(prefix, None)
        if cache is not None:  # an empty one is false
            cache.end_watches()

    # -- following the store --------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Follow the store until cancelled; after a gap everything is listed anew and watchers must start again."""
        bookmarks = asyncio.create_task(self._tell_progress(), name="cache-bookmarks")
        rereading = asyncio.create_task(self._reread(), name="cache-rereads")
        forgetting = asyncio.create_task(self._forget_old(), name="cache-old-changes")
        try:
            while True:
                try:
                    await self._load()
                    await self._follow()
                    return
                except (Compacted, Unavailable) as error:
                    log.warning("the watch cache starts over: %s", error)
                    for cache in self._resources.values():
                        cache.end_watches(Compacted(self.revision, self.revision + 1))
                    await self.clock.sleep(0.2)
        finally:
            bookmarks.cancel()
            rereading.cancel()
            forgetting.cancel()
            for cache in self._resources.values():
                cache.end_watches()

    async def wait_ready(self) -> None:
        await self._ready.wait()

    @property
    def ready(self) -> bool:
        return self._ready.is_set()

    async def _load(self) -> None:
        self._starts += 1
        items: dict[str, list[Item]] = {prefix: [] for prefix in self._resources}
        page = await self.store.list(ROOT, limit=PAGE)
        while True:
            for item in page.items:
                if (prefix := self._prefix_of(item.key)) in items:
                    items[prefix].append(item)
            if not page.more:
                break
            page = await self.store.list(ROOT, revision=page.revision, start_after=page.items[-1].key, limit=PAGE)
        if not self._resources.keys() <= items.keys():
            return await self._load()  # a resource came while the listing was made without it
        for prefix, found in items.items():
            if (cache := self._resources.get(prefix)) is not None:
                cache.load(found, page.revision)
        self._arrive(page.revision)
        self._ready.set()

    async def _follow(self) -> None:
        async with aclosing(self.store.watch(ROOT, self.revision)) as watch:
            self._request_progress = watch.request_progress
            async for batch in watch:
                for event in batch.events:
                    prefix = self._prefix_of(event.key)
                    # The revision moves with each event, so that a bookmark or a list made in between is right.
                    self.revision = event.revision
                    if prefix is not None:
                        self._resources[prefix].apply(event)
                    for loading, late in self._loading.items():
                        if event.key.startswith(loading):
                            late.append(event)
                self._arrive(batch.revision)

    def _prefix_of(self, key: str) -> str | None:
        """Return the registered prefix of a key: two or three folders deep (/registry/services/specs/)."""
        second = key.find("/", len(ROOT)) + 1
        if (prefix := key[:second]) in self._resources:
            return prefix
        third = key.find("/", second) + 1
        return prefix if third and (prefix := key[:third]) in self._resources else None

    # -- freshness ------------------------------------------------------------------------------------------------
    def _arrive(self, revision: int) -> None:
        self.revision = max(self.revision, revision)
        while self._waiting and self._waiting[0][0] <= self.revision:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)

    async def wait_fresh(self, revision: int, timeout: float = FRESH_SECONDS) -> None:
        """Wait until the cache shows a revision; raises FutureRevision when it does not come in time."""
        if self.revision >= revision and self._ready.is_set():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = (revision, next(self._count), future)
        heapq.heappush(self._waiting, waiting)
        self._request_progress()
        try:
            async with asyncio.timeout(timeout):
                await self._ready.wait()
                await future
        except TimeoutError as error:
            if self.revision >= revision and self._ready.is_set():
                return  # it came, while the loop was blocked so long that both were due at once
            raise FutureRevision(revision, self.revision) from error
        finally:
            if waiting in self._waiting:  # timed out or cancelled: a revision that never comes would keep it for ever
                self._waiting.remove(waiting)
                heapq.heapify(self._waiting)

    async def wait_current(self) -> int:
        """Wait until the cache shows all that was acknowledged before the call, and return the revision."""
        await self.wait_fresh(await self.store.current_revision())
        return self.revision

    async def _tell_progress(self) -> None:
        while True:
            await self.clock.sleep(BOOKMARK_SECONDS)
            for cache in tuple(self._resources.values()):
                cache.tell_progress()

    async def _forget_old(self) -> None:
        while True:
            await self.clock.sleep(FORGET_SECONDS)
            for cache in tuple(self._resources.values()):
                cache.forget_old()

    # -- values that cannot be decrypted --------------------------------------------------------------------------
    def check_readable(self) -> str | None:
        """Say which values cannot be decrypted; None where all can."""
        keys = [key for cache in self._resources.values() for key in cache.unreadable]
        return f"{len(keys)} values cannot be decrypted, {keys[0]} among them" if keys else None

    async def _reread(self) -> None:
        """Read values again that could not be decrypted, until they can."""
        while True:
            await self.clock.sleep(REREAD_SECONDS)
            for cache in tuple(self._resources.values()):
                for key in tuple(cache.unreadable):
                    try:
                        item = await self.store.get(key)
                    except StoreError as error:
                        log.debug("%s still cannot be read: %s", key, error)
                    else:
                        if item is not None:
                            cache.set_readable(item)
