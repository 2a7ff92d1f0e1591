"""The watch cache of one resource: its objects sorted by key, its recent changes, its watchers.

Keys are kept in one sorted list (finding a place is a binary search, making room a short memmove), so that a namespace
is a slice. Watchers are registered by the folder they watch: a change looks up the three folders that can concern it (the
resource, the namespace, the object) instead of asking every watcher. Recent changes stay in a ring; a watch from
further back is replayed from the store's history first.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

import msgspec

from control.pacing import Pace
from control.storage import codec
from control.storage.entry import Entry, Fields, Predicate
from control.storage.index import Index
from control.storage.replay import replay
from control.storage.selecting import chosen
from control.storage.store import Compacted, Event, FutureRevision, Item, Store, Unreadable, prefix_end
from control.storage.watcher import CHUNK, CHUNK_BYTES, QUEUE, QUEUE_BYTES, Change, Notice, Watcher
from kube.clock import Clock
from kube.shrinking import shrunk

log = logging.getLogger(__name__)

RING = 2048
RING_BYTES = 32 << 20
"""Of changed objects in the ring; their events, once made for watchers, take as much again."""
RING_SECONDS = 30.0
"""Time that a change stays in the ring: long enough for a client that reconnects; others are replayed from the store."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Objects in key order as of `revision`; `remaining` counts those after the last one (0 unless `more`)."""

    entries: Sequence[Entry]
    revision: int
    more: bool = False
    remaining: int = 0


class ResourceCache:
    """All objects under `prefix` ("/registry/pods/"). Prefixes given to methods end in "/" or are one whole key."""

    def __init__(
        self,
        store: Store,
        prefix: str,
        kind: str,
        api_version: str,
        fields: Fields,
        now: Callable[[], int],
        clock: Clock,
    ) -> None:
        self.prefix, self.kind, self.api_version = prefix, kind, api_version
        self._store, self._fields, self._now, self._clock = store, fields, now, clock
        self._entries: dict[str, Entry] = {}
        self._keys: list[str] = []
        self.unreadable: dict[str, tuple[int, str]] = {}
        """Keys whose values cannot be decrypted now: their revision and why. Reads that would show them raise Unreadable."""
        self._ring: deque[Change] = deque()
        self._ring_bytes = 0
        self._floor = 0
        self._watchers: dict[str, set[Watcher]] = {}
        self._turn = asyncio.Lock()
        """The turn of watchers whose predicates cost much."""
        self._index: Index | None = None
        self.changed = 0
        """The revision of the last change to this resource."""

    # -- filling --------------------------------------------------------------------------------------------------
    def index_by(self, read: Callable[[bytes], str]) -> None:
        """Index the objects, before there are any, by what `read` finds in their JSON (`indexed`)."""
        self._index = Index(read)

    def load(self, items: Sequence[Item], revision: int) -> None:
        """Start from a listing at a revision; watches opened before end with Compacted: changes may have passed them by."""
        self.end_watches(Compacted(self._floor, revision))
        self.unreadable = {item.key: (item.revision, item.failure) for item in items if item.failure}
        found = (self.readable(item.key, item.value, item.revision) for item in items if not item.failure)
        self._entries = {entry.key: entry for entry in found if entry is not None}
        self._keys = sorted(self._entries)
        if self._index is not None:
            self._index.clear()
            for entry in self._entries.values():
                self._index.put(entry)
        self._ring.clear()
        self._floor = self.changed = revision

    def entry(self, key: str, value: bytes, revision: int) -> Entry:
        return Entry(key, revision, codec.with_revision(value, revision), self._fields)

    def readable(self, key: str, value: bytes, revision: int) -> Entry | None:
        """Return the entry of a value that is JSON; others (protobuf, damage) are passed over, not fatal."""
        try:
            return self.entry(key, value, revision)
        except msgspec.DecodeError as error:
            log.error("ignoring %s at revision %d: %s", key, revision, error)
            return None

    def apply(self, event: Event) -> None:
        """Take over one change from the store and tell the watchers."""
        if event.revision <= self._floor:
            return
        key, previous = event.key, self._entries.get(event.key)
        if event.failure and event.type != "DELETED":
            self._set_unreadable(key, event.revision, event.failure)
            return
        self.unreadable.pop(key, None)
        entry: Entry | None = None
        if event.type == "DELETED":
            if previous is None:
                return
            del self._entries[key]
            if self._index is not None:
                self._index.drop(key)
            self._entries = shrunk(self._entries)
            del self._keys[bisect_left(self._keys, key)]
        else:
            entry = self.readable(key, event.value, event.revision)
            if entry is None:
                return
            self._entries[key] = entry
            if self._index is not None:
                self._index.put(entry)
            if previous is None:
                insort(self._keys, key)
        self.changed = event.revision
        change = Change(key, event.revision, entry, previous, self._clock.monotonic())
        self._remember(change)
        for watcher in self._watchers_of(key):
            watcher.offer(change)

    def _watchers_of(self, key: str) -> list[Watcher]:
        folder = key[: key.rindex("/") + 1]
        places = (self.prefix, folder, key) if folder != self.prefix else (folder, key)
        return [watcher for place in places for watcher in self._watchers.get(place, ())]

    def _set_unreadable(self, key: str, revision: int, failure: str) -> None:
        """End the watches that would have to show an unreadable value; they are refused until it can be read."""
        log.error("%s at revision %d cannot be read: %s", key, revision, failure)
        self.unreadable[key] = (revision, failure)
        self.changed = revision
        for watcher in self._watchers_of(key):
            watcher.close(Unreadable(key, failure))

    def set_readable(self, item: Item) -> None:
        """Store a value that can be decrypted at last. Watches start again from here: its revision is in their past."""
        if self.unreadable.get(item.key, (0, ""))[0] != item.revision:
            return  # a later change is on its way
        del self.unreadable[item.key]
        entry = self.readable(item.key, item.value, item.revision)
        if entry is not None:
            if item.key not in self._entries:
                insort(self._keys, item.key)
            self._entries[item.key] = entry
            if self._index is not None:
                self._index.put(entry)
        now = self._now()
        self.end_watches(Compacted(self._floor, now))
        self._ring.clear()
        self._floor = now

    def _check_readable(self, prefix: str) -> None:
        for key, (_, failure) in self.unreadable.items():
            if key == prefix or (prefix.endswith("/") and key.startswith(prefix)):
                raise Unreadable(key, failure)

    def _remember(self, change: Change) -> None:
        ring = self._ring
        self._ring_bytes = change.size + (self._ring_bytes if ring else 0)
        ring.append(change)
        while len(ring) > RING or self._ring_bytes > RING_BYTES:
            self._forget_oldest()
        self.forget_old()

    def _forget_oldest(self) -> None:
        change = self._ring.popleft()
        self._floor = change.revision
        self._ring_bytes -= change.size

    def forget_old(self) -> None:
        """Forget changes that happened long ago; watches from before them are replayed from the store."""
        ring, oldest = self._ring, self._clock.monotonic() - RING_SECONDS
        while ring and ring[0].at < oldest:
            self._forget_oldest()

    # -- reading --------------------------------------------------------------------------------------------------
    def get(self, key: str) -> Entry | None:
        """Return an object; None where there is none. Raises Unreadable."""
        if self.unreadable:
            self._check_readable(key)
        return self._entries.get(key)

    def indexed(self, folder: str, value: str) -> Sequence[Entry]:
        """Return the objects of a folder that the index has under a value. Raises Unreadable as `list` does."""
        if self.unreadable:
            self._check_readable(folder)
        return [self._entries[key] for key in self._index.keys(folder, value)] if self._index is not None else ()

    def __len__(self) -> int:
        return len(self._entries)

    def list(
        self, prefix: str = "", predicate: Predicate | None = None, limit: int = 0, start_after: str = ""
    ) -> Slice:
        """Return the objects of a folder that match, at most `limit`; `remaining` is exact without a predicate.

        Raises Unreadable where one of the folder's values cannot be decrypted: a list never leaves objects out.
        """
        if self.unreadable:
            self._check_readable(prefix or self.prefix)
        if not self._keys:  # most kinds that admission asks for have no objects
            return Slice([], self._now())
        low, high = self._bounds(prefix or self.prefix)
        if start_after:
            low = max(low, bisect_right(self._keys, start_after))
        entries = self._entries
        if predicate is None:
            end = min(high, low + limit) if limit else high
            found = [entries[key] for key in self._keys[low:end]]
            return Slice(found, self._now(), end < high, max(0, high - end))
        found = []
        for index in range(low, high):
            entry = entries[self._keys[index]]
            if predicate(entry):
                if limit and len(found) == limit:
                    return Slice(found, self._now(), True, high - index)
                found.append(entry)
        return Slice(found, self._now())

    async def choose(self, prefix: str, predicate: Predicate, limit: int, start_after: str, costly: bool) -> Slice:
        """Return what `list` does of the present state, with other work of the event loop in between."""
        state = self.list(prefix, None, 0, start_after)
        found, after = await chosen(state.entries, predicate, costly, limit)
        if after:
            return Slice(found, state.revision, True, len(state.entries) - after)
        return Slice(found, state.revision)

    def count(self, prefix: str = "") -> int:
        """Return how many objects a folder has."""
        low, high = self._bounds(prefix or self.prefix)
        return high - low

    def _bounds(self, prefix: str) -> tuple[int, int]:
        low = bisect_left(self._keys, prefix)
        if prefix.endswith("/"):
            return low, bisect_left(self._keys, prefix_end(prefix), low)
        return low, bisect_right(self._keys, prefix, low)

    # -- watching -------------------------------------------------------------------------------------------------
    def watch(
        self,
        after_revision: int,
        prefix: str = "",
        predicate: Predicate | None = None,
        *,
        bookmarks: bool = False,
        initial: bool = False,
        initial_end: bool = False,
        limit: int = 0,
        costly: bool = False,
    ) -> Watcher:
        """Watch a folder for changes after a revision.

        `initial` sends the present objects as ADDED first and then what follows, whatever the revision; `initial_end`
        closes that part with the bookmark of sendInitialEvents. A `costly` predicate is evaluated with pauses for
        other watchers.
        Raises FutureRevision (wait for freshness before), Unreadable.
        """
        prefix, now = prefix or self.prefix, self._now()
        if self.unreadable:
            self._check_readable(prefix)
        past: AsyncGenerator[Sequence[Notice], None] | None = None
        recent: list[Change] = []
        if initial:
            past = self._state(self.list(prefix), initial_end, predicate, costly)
        elif after_revision > now:
            raise FutureRevision(after_revision, now)
        elif after_revision >= self._floor:
            recent = [change for change in self._ring if change.revision > after_revision and change.within(prefix)]
            if sum(change.size for change in recent) > QUEUE_BYTES:  # they would have to wait for the watcher
                past, recent = replay(self._store, self.readable, after_revision, now, prefix, predicate), []
            elif recent and predicate is not None:
                past, recent = self._recent(recent, predicate), []
        elif after_revision < now:
            past = replay(self._store, self.readable, after_revision, now, prefix, predicate)
        watchers = self._watchers.setdefault(prefix, set())

        def unregister(watcher: Watcher) -> None:
            watchers.discard(watcher)
            if not watchers and self._watchers.get(prefix) is watchers:
                del self._watchers[prefix]

        watcher = Watcher(predicate, bookmarks, unregister, past, limit or QUEUE, self._turn if costly else None)
        watchers.add(watcher)
        for change in recent:
            watcher.offer(change)
        return watcher

    async def _recent(self, changes: Sequence[Change], predicate: Predicate) -> AsyncGenerator[Sequence[Notice], None]:
        pace, notices = Pace(), []
        for change in changes:
            await pace.step(change.unread)
            if (notice := change.seen_by(predicate)) is not None:
                notices.append(notice)
        if notices:
            yield notices

    async def _state(
        self, state: Slice, end: bool, predicate: Predicate | None, costly: bool
    ) -> AsyncGenerator[Sequence[Notice], None]:
        if predicate is not None:
            state = Slice((await chosen(state.entries, predicate, costly))[0], state.revision)
        start = size = 0
        for index, entry in enumerate(state.entries, 1):
            size += len(entry.data)
            # These notices, and their lines, are this watcher's own: a thousand watchers that do not read keep as many.
            if size >= CHUNK_BYTES or index - start == CHUNK or index == len(state.entries):
                yield [Notice("ADDED", each) for each in state.entries[start:index]]
                start, size = index, 0
        if end:
            yield [self.bookmark(state.revision, {"k8s.io/initial-events-end": "true"})]

    def bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> Notice:
        """Return a bookmark: an object of the kind with nothing in it but the resourceVersion."""
        metadata = {"annotations": annotations} if annotations else {}
        value = codec.encode({"kind": self.kind, "apiVersion": self.api_version, "metadata": metadata})
        return Notice("BOOKMARK", self.entry("", value, revision))

    def tell_progress(self) -> None:
        """Send a bookmark to the watchers that asked for them."""
        notice = self.bookmark(self._now())
        for watchers in tuple(self._watchers.values()):
            for watcher in tuple(watchers):
                if watcher.bookmarks:
                    watcher.push(notice)

    def renew(self, fields: Fields) -> None:
        """Take another rule for selectable fields, and end all watches: objects may be shown differently from now on."""
        self._fields = fields
        for entry in self._entries.values():
            entry.forget(fields)
        self.end_watches()

    def end_watches(self, failure: Exception | None = None) -> None:
        for watchers in tuple(self._watchers.values()):
            for watcher in tuple(watchers):
                watcher.close(failure)
