"""The watch cache of one resource: its objects sorted by key, its recent changes, its watchers.

Keys are in one sorted list (binary search; an insertion is a short memmove), so a namespace is a slice. Watchers are
registered by the folder that they watch: a change looks up the three folders that contain it (the resource, the namespace,
the object) instead of checking every watcher; selectors are evaluated by evaluation.py. A watch starts with the recent changes
since its revision; from an older revision, they are replayed from the store's history.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

import msgspec

from control.storage import codec
from control.storage.entry import Entry, Fields, Predicate
from control.storage.evaluation import Evaluations
from control.storage.folder_list import FolderList
from control.storage.history_reads import HistoryReads
from control.storage.index import Index
from control.storage.loading import Loading, readable
from control.storage.recent_changes import RecentChanges
from control.storage.replay import initial_events, replay, replay_changes
from control.storage.selection import select_entries
from control.storage.selector import Selector
from control.storage.store import Compacted, Event, FutureRevision, Item, Store, Unreadable, prefix_end
from control.storage.watched_folder import WatchedFolder
from control.storage.watcher import QUEUE, QUEUE_BYTES, Change, Watcher, WatchEvent
from control.storage.watcher_group import Group
from kube.clock import Clock
from kube.shrinking import shrunk

log = logging.getLogger(__name__)
BOOKMARKED = 256
"""Watchers, or groups of watchers with equal selectors, that are sent a bookmark at once."""


class Slice(msgspec.Struct, frozen=True):
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
        evaluations: Evaluations | None = None,
        history: HistoryReads | None = None,
    ) -> None:
        self.prefix, self.kind, self.api_version = prefix, kind, api_version
        self._store, self._fields, self._now, self._clock = store, fields, now, clock
        self._entries: dict[str, Entry] = {}
        self._keys: list[str] = []
        self.unreadable: dict[str, tuple[int, str]] = {}
        """Revision and error of each key whose value cannot be decrypted. Reads that contain such a key raise Unreadable."""
        self.recent = RecentChanges(clock)
        self._watched: dict[str, WatchedFolder] = {}
        self._evaluations = evaluations or Evaluations()
        self._history = history or HistoryReads()
        self._index: Index | None = None
        self.changed = 0
        """The revision of the last change to this resource."""
        self._marked: WatchEvent | None = None
        self._listed: tuple[str, FolderList] | None = None
        """The folder that was listed last, as long as no object changes."""

    # -- filling --------------------------------------------------------------------------------------------------
    def index_by(self, read: Callable[[bytes], str]) -> None:
        """Index the objects by the value that `read` decodes from their JSON (`indexed`); to be called before `loading`."""
        self._index = Index(read)

    def loading(self) -> Loading:
        """Return what takes the pages of a listing, for `load`."""
        index = self._index.empty() if self._index is not None else None
        return Loading(self.kind, self.api_version, self._fields, index)

    def load(self, listed: Loading, revision: int) -> None:
        """Replace all objects by a listing at a revision. Watches end with Compacted: they may have missed changes."""
        self.end_watches(Compacted(self.recent.floor, revision))
        self.unreadable, self._entries, self._index = listed.unreadable, listed.entries, listed.index
        self._keys = sorted(self._entries)
        self._end_list()
        if listed.fields is not self._fields:  # another rule since the listing began
            for entry in self._entries.values():
                entry.forget(self._fields)
        self.recent.clear(revision)
        self.changed = revision

    def entry(self, key: str, value: bytes, revision: int) -> Entry:
        return Entry(key, revision, codec.with_revision(codec.shallow(value), revision), self._fields)

    def readable(self, key: str, value: bytes, revision: int) -> Entry | None:
        """Return the entry of a value; None, with a log line, if it is not JSON (protobuf, or damaged)."""
        return readable(key, value, revision, self._fields)

    def apply(self, event: Event) -> None:
        """Apply one change from the store and queue it for the watchers."""
        if event.revision <= self.recent.floor:
            return
        key, previous = event.key, self._entries.get(event.key)
        if event.failure and event.type != "DELETED":
            self._set_unreadable(key, event.revision, event.failure)
            return
        self.unreadable.pop(key, None)
        self._end_list()
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
        self.recent.append(change)
        groups = []
        for folder in self._watched_with(key):
            for watcher in tuple(folder.plain):
                watcher.push(change.plain)
            groups += folder.affected(change)
        if groups:
            self._evaluations.offer(change, groups)

    def _watched_with(self, key: str) -> list[WatchedFolder]:
        """Return the watched folders that contain a key."""
        folder, watched = key[: key.rindex("/") + 1], self._watched
        places = (self.prefix, folder, key) if folder != self.prefix else (folder, key)
        return [watched[place] for place in places if place in watched]

    def _watchers(self) -> Iterator[Watcher]:
        """Return all watchers, which may be closed meanwhile."""
        return (watcher for folder in tuple(self._watched.values()) for watcher in folder.watchers())

    def _set_unreadable(self, key: str, revision: int, failure: str) -> None:
        """Record an unreadable value and end the watches that contain it; they are rejected until it can be read."""
        log.error("%s at revision %d cannot be read: %s", key, revision, failure)
        self.unreadable[key] = (revision, failure)
        self.changed = revision
        for folder in self._watched_with(key):
            for watcher in folder.watchers():
                watcher.close(Unreadable(key, failure))

    def set_readable(self, item: Item) -> None:
        """Store a value that has become readable. All watches end, because its revision may be older than theirs."""
        if self.unreadable.get(item.key, (0, ""))[0] != item.revision:
            return  # a later change is on its way
        del self.unreadable[item.key]
        entry = self.readable(item.key, item.value, item.revision)
        if entry is not None:
            self._end_list()
            if item.key not in self._entries:
                insort(self._keys, item.key)
            self._entries[item.key] = entry
            if self._index is not None:
                self._index.put(entry)
        now = self._now()
        self.end_watches(Compacted(self.recent.floor, now))
        self.recent.clear(now)

    def _check_readable(self, prefix: str) -> None:
        for key, (_, failure) in self.unreadable.items():
            if key == prefix or (prefix.endswith("/") and key.startswith(prefix)):
                raise Unreadable(key, failure)

    # -- reading --------------------------------------------------------------------------------------------------
    def get(self, key: str) -> Entry | None:
        """Return an object; None if it does not exist. Raises Unreadable."""
        if self.unreadable:
            self._check_readable(key)
        return self._entries.get(key)

    def indexed(self, folder: str, value: str) -> Sequence[Entry]:
        """Return the objects of a folder that the index has under a value. Raises Unreadable as `list` does."""
        if self.unreadable:
            self._check_readable(folder)
        return [self._entries[key] for key in self._index.keys(folder, value)] if self._index is not None else ()

    @property
    def is_empty(self) -> bool:
        """Return whether there are no objects, none that cannot be read either."""
        return not (self._keys or self.unreadable)

    def __len__(self) -> int:
        return len(self._entries)

    def list(
        self, prefix: str = "", predicate: Predicate | None = None, limit: int = 0, start_after: str = ""
    ) -> Slice:
        """Return the objects of a folder that match, at most `limit`; `remaining` is exact without a predicate.

        Raises Unreadable if one of the folder's values cannot be decrypted: a list never omits objects.
        """
        if self.unreadable:
            self._check_readable(prefix or self.prefix)
        if not self._keys:
            return Slice([], self._now())
        if predicate is None and not limit and not start_after:
            return Slice(self._folder(prefix or self.prefix), self._now())
        low, high = self._bounds(prefix or self.prefix)
        if start_after:
            low = max(low, bisect_right(self._keys, start_after))
        entries = self._entries
        if predicate is None:
            end = min(high, low + limit) if limit else high
            found = list(map(entries.__getitem__, self._keys[low:end]))
            return Slice(found, self._now(), end < high, max(0, high - end))
        found = []
        for index in range(low, high):
            entry = entries[self._keys[index]]
            if predicate(entry):
                if limit and len(found) == limit:
                    return Slice(found, self._now(), True, high - index)
                found.append(entry)
        return Slice(found, self._now())

    def _end_list(self) -> None:
        if self._listed is not None:
            self._listed[1].end()
            self._listed = None

    def _folder(self, prefix: str) -> FolderList:
        """Return all objects of a folder."""
        if self._listed is None or self._listed[0] != prefix:
            low, high = self._bounds(prefix)
            self._end_list()
            self._listed = prefix, FolderList(map(self._entries.__getitem__, self._keys[low:high]))
        return self._listed[1]

    async def choose(self, prefix: str, predicate: Predicate, limit: int, start_after: str, *, costly: bool) -> Slice:
        """Return the result of `list` on the present state, yielding to the event loop meanwhile."""
        state = self.list(prefix, None, 0, start_after)
        found, after = await select_entries(state.entries, predicate, costly=costly, most=limit)
        if after:
            return Slice(found, state.revision, True, len(state.entries) - after)
        return Slice(found, state.revision)

    def count(self, prefix: str = "") -> int:
        """Return the number of objects in a folder."""
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
        selector: Selector | None = None,
        *,
        owner: str = "",
        bookmarks: bool = False,
        initial: bool = False,
        initial_end: bool = False,
        limit: int = 0,
    ) -> Watcher:
        """Watch a folder for changes after a revision; evaluations and reads of old changes are charged to `owner`.

        `initial` sends the present objects as ADDED first and then the changes, whatever the revision; `initial_end` ends that
        part with the bookmark of sendInitialEvents. Raises FutureRevision (call `wait_fresh` before), Unreadable.
        """
        prefix, now = prefix or self.prefix, self._now()
        if self.unreadable:
            self._check_readable(prefix)
        past: AsyncGenerator[Sequence[WatchEvent], None] | None = None
        recent: list[Change] = []
        predicate = None if selector is None else selector.matches
        if initial:
            end = self.bookmark(now, {"k8s.io/initial-events-end": "true"}) if initial_end else None
            costly = selector is not None and selector.costly
            past = initial_events(self.list(prefix).entries, end, predicate, costly=costly)
        elif after_revision > now:
            raise FutureRevision(after_revision, now)
        elif after_revision >= self.recent.floor:
            recent = self.recent.after(after_revision, prefix)
            if sum(change.size for change in recent) > QUEUE_BYTES:  # too large for the queue of the watcher
                past, recent = self._replay(owner, after_revision, now, prefix, predicate), []
            elif recent and predicate is not None:
                past, recent = replay_changes(recent, predicate), []
        elif after_revision < now:
            past = self._replay(owner, after_revision, now, prefix, predicate)
        watched = self._watched.setdefault(prefix, WatchedFolder())
        group = None
        if selector is not None:
            group = watched.group(selector, self._evaluations.account(owner), limit or QUEUE)

        def unregister(watcher: Watcher) -> None:
            watched.remove(watcher, group)
            if not watched and self._watched.get(prefix) is watched:
                del self._watched[prefix]

        watcher = Watcher(now, bookmarks=bookmarks, unregister=unregister, past=past, limit=limit or QUEUE)
        watched.add(watcher, group)
        for change in recent:
            watcher.push(change.plain)
        return watcher

    def _replay(
        self, owner: str, after: int, until: int, prefix: str, predicate: Predicate | None
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        return replay(self._store, self._history, owner, self.readable, after, until, prefix, predicate)

    def bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> WatchEvent:
        """Return a bookmark: an object of the kind that contains only the resourceVersion."""
        metadata = {"annotations": annotations} if annotations else {}
        value = codec.encode({"kind": self.kind, "apiVersion": self.api_version, "metadata": metadata})
        return WatchEvent("BOOKMARK", self.entry("", value, revision))

    async def send_bookmarks(self) -> None:
        """Send a bookmark to the watchers that requested them, some in each iteration of the event loop."""
        sent = 0
        for folder in tuple(self._watched.values()):
            targets: list[Watcher | Group] = [*folder.plain, *folder.groups()]
            for target in targets:
                if isinstance(target, Group):
                    target.bookmark(self._bookmark_now())
                elif target.bookmarks and target in folder.plain:
                    target.push(self._bookmark_now())
                sent += 1
                if sent % BOOKMARKED == 0:
                    await asyncio.sleep(0)

    def _bookmark_now(self) -> WatchEvent:
        """Return the bookmark of this moment, one for all watchers."""
        now = self._now()
        if self._marked is None or self._marked.entry.revision != now:
            self._marked = self.bookmark(now)
        return self._marked

    def renew(self, fields: Fields) -> None:
        """Use another function for selectable fields, and end all watches, because objects may match differently now."""
        self._fields = fields
        for entry in self._entries.values():
            entry.forget(fields)
        self.end_watches()

    def end_watches(self, failure: Exception | None = None) -> None:
        for watcher in self._watchers():
            watcher.close(failure)
