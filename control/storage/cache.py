"""The watch cache: the objects of all resources in memory, kept current by one watch of the store.

One watch of /registry/ serves all resources, so there is one order of events and one revision for the whole cache. Other
tasks may run between two revisions of a batch from the store. Consistent reads request the store's revision
and wait until the cache has reached it (`wait_current`, `wait_fresh`).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing

from control.event_loop.pacing import ServerSlice
from control.storage.entry import Fields
from control.storage.evaluation import Evaluations
from control.storage.history_reads import HistoryReads
from control.storage.loading import pages
from control.storage.resource_cache import ResourceCache
from control.storage.store import Compacted, Event, FutureRevision, Item, Store, StoreError, Unavailable, prefix_end
from kube.clock import SYSTEM, Clock
from kube.loops import Loops

log = logging.getLogger(__name__)

ROOT = "/registry/"
BOOKMARK_SECONDS = 60.0
DROP_SECONDS = 5.0
"""Interval in which changes older than KEPT_SECONDS are dropped, also if no new changes arrive."""
RETRY_SECONDS = 3.0
"""Interval in which values that could not be decrypted are read again, like upstream's retries of a failed plugin."""
FRESH_SECONDS = 3.0
"""Seconds that a read waits for a revision, like upstream; after that the revision is reported as too large."""


class WatchCache:
    """Register resources, then `run` it; `wait_ready` returns after the first listing."""

    def __init__(
        self,
        store: Store,
        clock: Clock = SYSTEM,
        evaluations: Evaluations | None = None,
        history: HistoryReads | None = None,
    ) -> None:
        self.store, self.clock = store, clock
        self.evaluations = evaluations or Evaluations()
        self.history = history or HistoryReads()
        self.revision = 0
        self._resources: dict[str, ResourceCache] = {}
        self._loading: dict[str, list[Event]] = {}
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = itertools.count()
        self._generation = 0
        self._ready = asyncio.Event()
        self._request_progress: Callable[[], None] = lambda: None

    def resource(self, prefix: str, kind: str, api_version: str, fields: Fields = lambda obj: {}) -> ResourceCache:
        """Register a resource before `run`; `prefix` is its folder, for example "/registry/pods/"."""
        cache = self._made(prefix, kind, api_version, fields)
        self._resources[prefix] = cache
        return cache

    def _made(self, prefix: str, kind: str, api_version: str, fields: Fields) -> ResourceCache:
        def now() -> int:
            return self.revision

        return ResourceCache(
            self.store, prefix, kind, api_version, fields, now, self.clock, self.evaluations, self.history
        )

    async def add_resource(
        self, prefix: str, kind: str, api_version: str, fields: Fields = lambda obj: {}
    ) -> ResourceCache:
        """Register a resource while running, and load its objects from the store."""
        await self._ready.wait()
        while True:
            cache = self._made(prefix, kind, api_version, fields)
            late = self._loading[prefix] = []
            try:
                if await self._fill(cache, late):
                    self._resources[prefix] = cache
                    return cache
            except Compacted:
                continue
            finally:
                del self._loading[prefix]

    async def _fill(self, cache: ResourceCache, late: list[Event]) -> bool:
        """Load a resource's objects and then the changes since, which are added to `late` meanwhile.

        Return False if all resources have been loaded again during it: there may be a gap in the changes.
        """
        start, revision, listed = self._generation, 0, cache.loading()
        async for page in pages(self.store, cache.prefix, self.revision):
            await listed.add_page(page.items)
            revision = page.revision
        cache.load(listed, revision)
        server_slice = ServerSlice()
        for event in late:
            await server_slice.step(len(event.value))
            cache.apply(event)
        return start == self._generation

    def remove_resource(self, prefix: str) -> None:
        """Remove a resource and end its watches."""
        cache = self._resources.pop(prefix, None)
        if cache is not None:  # an empty cache is false
            cache.end_watches()

    # -- watching the store ---------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Watch the store until cancelled; after a gap all resources are listed again and all watches end."""
        loops = Loops(self.clock)
        tasks = [
            asyncio.create_task(loops.run(name, work), name=name)
            for name, work in (
                ("bookmarks of watches", self._send_bookmarks),
                ("values that cannot be decrypted", self._retry_unreadable),
                ("old changes of the watch cache", self._drop_old_changes),
            )
        ]
        try:
            while True:
                try:
                    await self._load()
                    await self._follow()
                    return
                except (Compacted, Unavailable) as error:
                    log.warning("the watch cache is loaded again: %s", error)
                    for cache in self._resources.values():
                        cache.end_watches(Compacted(self.revision, self.revision + 1))
                    await self.clock.sleep(0.2)
        finally:
            for task in tasks:
                task.cancel()
            for cache in self._resources.values():
                cache.end_watches()
            await self.history.close()
            await self.evaluations.close()

    async def wait_ready(self) -> None:
        await self._ready.wait()

    @property
    def ready(self) -> bool:
        return self._ready.is_set()

    async def _load(self) -> None:
        self._generation += 1
        listed = {prefix: cache.loading() for prefix, cache in self._resources.items()}
        revision = 0
        async for page in pages(self.store, ROOT):
            for prefix, items in self._by_prefix(page.items):
                if prefix in listed:
                    await listed[prefix].add_page(items)
            revision = page.revision
        if not self._resources.keys() <= listed.keys():
            return await self._load()  # a resource was registered during the listing, which does not have it
        for prefix, found in listed.items():
            if (cache := self._resources.get(prefix)) is not None:
                cache.load(found, revision)
        self.revision = revision  # lower than before, if the store was replaced by an older copy
        self._advance_to(revision)
        self._ready.set()

    async def _follow(self) -> None:
        async with aclosing(self.store.watch(ROOT, self.revision)) as watch:
            self._request_progress = watch.request_progress
            server_slice = ServerSlice()
            async for batch in watch:
                server_slice.begin()
                for event in batch.events:
                    # The changes of one revision are one change to whoever lists or begins to watch.
                    if server_slice.over(len(event.value)) and event.revision > self.revision:
                        self._advance_to(self.revision)
                        await server_slice.turn(len(event.value))
                    prefix = self._prefix_of(event.key)
                    # The revision increases with each event, so that bookmarks and lists between events are correct.
                    self.revision = event.revision
                    if prefix is not None:
                        self._resources[prefix].apply(event)
                    for loading, late in self._loading.items():
                        if event.key.startswith(loading):
                            late.append(event)
                self._advance_to(batch.revision)

    def _by_prefix(self, items: Sequence[Item]) -> Iterator[tuple[str, Sequence[Item]]]:
        """Split a page, which is in key order, into those of each registered prefix."""
        start = 0
        while start < len(items):
            prefix, end = self._prefix_of(items[start].key), start + 1
            if prefix is not None:
                end = bisect_left(items, prefix_end(prefix), end, key=lambda item: item.key)
                yield prefix, items[start:end]
            start = end

    def _prefix_of(self, key: str) -> str | None:
        """Return the registered prefix of a key: two or three folders deep (/registry/services/specs/)."""
        second = key.find("/", len(ROOT)) + 1
        if (prefix := key[:second]) in self._resources:
            return prefix
        third = key.find("/", second) + 1
        return prefix if third and (prefix := key[:third]) in self._resources else None

    # -- freshness ------------------------------------------------------------------------------------------------
    def _advance_to(self, revision: int) -> None:
        self.revision = max(self.revision, revision)
        while self._waiting and self._waiting[0][0] <= self.revision:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)

    async def wait_fresh(self, revision: int, timeout: float = FRESH_SECONDS) -> None:
        """Wait until the cache has reached a revision; raises FutureRevision after the timeout."""
        if self.revision >= revision and self._ready.is_set():
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        waiting = (revision, next(self._count), future)
        heapq.heappush(self._waiting, waiting)
        self._request_progress()
        # Each write waits here: a timer and a future cost half of what asyncio.timeout does.
        timer = loop.call_later(timeout, _end_wait, future)
        try:
            await future
        finally:
            timer.cancel()
            if waiting in self._waiting:  # after a timeout or cancellation: the revision may never be reached
                self._waiting.remove(waiting)
                heapq.heapify(self._waiting)
        # If the event loop was blocked, the revision and the timeout arrived in the same iteration.
        if self.revision < revision or not self._ready.is_set():
            raise FutureRevision(revision, self.revision)

    async def wait_current(self) -> int:
        """Wait until the cache has all writes that were acknowledged before the call, and return the revision."""
        revision = await self.store.current_revision()
        if self.revision < revision or not self._ready.is_set():  # else there is nothing to wait for
            await self.wait_fresh(revision)
        return self.revision

    async def _send_bookmarks(self) -> None:
        while True:
            await self.clock.sleep(BOOKMARK_SECONDS)
            for cache in tuple(self._resources.values()):
                await cache.send_bookmarks()
                await asyncio.sleep(0)

    async def _drop_old_changes(self) -> None:
        while True:
            await self.clock.sleep(DROP_SECONDS)
            for cache in tuple(self._resources.values()):
                cache.recent.drop_old()

    # -- values that cannot be decrypted --------------------------------------------------------------------------
    def check_readable(self) -> str | None:
        """Return a message about values that cannot be decrypted; None if there are none."""
        keys = [key for cache in self._resources.values() for key in cache.unreadable]
        return f"{len(keys)} values cannot be decrypted, {keys[0]} among them" if keys else None

    async def _retry_unreadable(self) -> None:
        """Read values that could not be decrypted again until they can be."""
        while True:
            await self.clock.sleep(RETRY_SECONDS)
            for cache in tuple(self._resources.values()):
                # In another order each time: while a plugin does not answer, only the first values cause calls of it.
                for key in random.sample(tuple(cache.unreadable), len(cache.unreadable)):
                    try:
                        item = await self.store.get(key)
                    except StoreError as error:
                        log.debug("%s still cannot be read: %s", key, error)
                    else:
                        if item is not None:
                            cache.set_readable(item)


def _end_wait(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
