"""A storage engine in memory, for clusters that end with their process: nothing is durable, no thread, no file.

The log has a row for each write, as SQLite's table has; a watch reads it from its position on.
"""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from pathlib import Path

from control.storage.memory_rows import CHUNK, Row, Rows, since
from control.storage.memory_watch import MemoryWatch
from control.storage.store import (
    Compacted,
    FutureRevision,
    Item,
    KeyExists,
    KeyNotFound,
    Page,
    RevisionConflict,
    Unavailable,
    prefix_end,
)
from kube.clock import SYSTEM, Clock


class MemoryStore:
    """A store of one process (see `control.storage.store.Store`)."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._log: list[Row] = []
        """Rows in the order of their revisions, which have no gaps."""
        self._first = 1
        """Revision of the first row of the log."""
        self._newest: dict[str, Row] = {}
        """By key, also of deleted keys whose history is kept."""
        self._keys: list[str] = []
        self._compacted = 0
        self._watches: dict[MemoryWatch, None] = {}
        self._expiry: asyncio.Task[None] | None = None
        self._closed = False
        self._subscribers: list[Callable[[Row], None]] = []

    def subscribe(self, written: Callable[[Row], None]) -> None:
        """Call a function with each write, in the task that writes."""
        self._subscribers.append(written)

    # -- reads ----------------------------------------------------------------------------------------------------
    async def get(self, key: str) -> Item | None:
        row = self._newest.get(key)
        return None if row is None or row.deleted else row.item

    async def list(
        self, prefix: str, revision: int = 0, start_after: str = "", limit: int = 0, *, counted: bool = True
    ) -> Page:
        current = self._revision()
        if revision > current:
            raise FutureRevision(revision, current)
        if 0 < revision < self._compacted:
            raise Compacted(revision, self._compacted)
        start = bisect.bisect_left(self._keys, prefix)
        if start_after >= prefix:
            start = max(start, bisect.bisect_right(self._keys, start_after))
        end = bisect.bisect_left(self._keys, prefix_end(prefix))
        items: list[Item] = []
        remaining = 0
        for key in self._keys[start:end]:
            item = self._at(key, revision or current)
            if item is None:
                continue
            if limit and len(items) == limit:
                remaining += 1
                if not counted:
                    break
            else:
                items.append(item)
        return Page(items, revision or current, remaining > 0, remaining if counted else 0)

    def _at(self, key: str, revision: int) -> Item | None:
        row: Row | None = self._newest[key]
        while row is not None and row.item.revision > revision:
            row = row.before
        return None if row is None or row.deleted else row.item

    # -- writes ---------------------------------------------------------------------------------------------------
    async def create(self, key: str, value: bytes, ttl: int = 0) -> Item:
        row = self._newest.get(key)
        if row is not None and not row.deleted:
            raise KeyExists(key, row.item)
        return self._write(key, value, ttl=ttl)

    async def update(self, key: str, value: bytes, expected_revision: int, ttl: int = 0) -> Item:
        self._check(key, expected_revision, always=True)
        return self._write(key, value, ttl=ttl)

    async def delete(self, key: str, expected_revision: int = 0) -> Item:
        last = self._check(key, expected_revision)
        written = self._write(key, b"", deleted=True)
        return Item(key, last.value, written.revision, last.create_revision)

    def _check(self, key: str, expected: int, *, always: bool = False) -> Item:
        row = self._newest.get(key)
        if row is None or row.deleted:
            raise KeyNotFound(key)
        if (expected or always) and row.item.revision != expected:
            raise RevisionConflict(key, expected, row.item)
        return row.item

    def _write(self, key: str, value: bytes, *, ttl: int = 0, deleted: bool = False) -> Item:
        if self._closed:
            raise Unavailable("the store is closed")
        before = self._newest.get(key)
        revision = self._revision() + 1
        living = before is not None and not before.deleted
        created = before.item.create_revision if before is not None and living else revision
        item = Item(key, value, revision, created)
        row = Row(item, deleted, before, self._clock.monotonic() + ttl if ttl else None)
        if before is None:
            bisect.insort(self._keys, key)
        self._newest[key] = row
        self._log.append(row)
        for written in self._subscribers:
            written(row)
        for watch in self._watches:
            watch.wake(key)
        if ttl:
            self._expire_later()
        return item

    def _expire_later(self) -> None:
        if self._expiry is None:
            # Not in the context of the request that is the first to write such a key.
            self._expiry = asyncio.create_task(self._expire(), name="expiry of keys", context=Context())

    async def _expire(self) -> None:
        """Delete keys whose time is over, until no key has a time."""
        while timed := [row for row in self._newest.values() if row.expires is not None and not row.deleted]:
            now = self._clock.monotonic()
            for row in timed:
                if row.expires is not None and row.expires <= now:
                    self._write(row.item.key, b"", deleted=True)
            await self._clock.sleep(max(0.5, min(row.expires or now for row in timed) - now))
        self._expiry = None

    # -- history --------------------------------------------------------------------------------------------------
    def watch(self, prefix: str, after_revision: int, *, previous: bool = False) -> MemoryWatch:
        watch = MemoryWatch(self, prefix, after_revision, previous=previous)
        self._watches[watch] = None
        return watch

    def forget(self, watch: MemoryWatch) -> None:
        """End the notification of a watch."""
        self._watches.pop(watch, None)

    def changes(self, prefix: str, after: int) -> tuple[Rows, int]:
        """Return the next rows with a prefix after a revision, and the revision up to which they are all. Raise Compacted."""
        if after < self._compacted:
            raise Compacted(after, self._compacted)
        found: Rows = []
        for row in self._log[after + 1 - self._first :]:
            if row.item.key.startswith(prefix):
                found.append(row)
                if len(found) == CHUNK:
                    return found, row.item.revision
        return found, self._revision()

    async def compact(self, revision: int) -> None:
        current = self._revision()
        if revision > current:
            raise FutureRevision(revision, current)
        if revision <= self._compacted:
            raise Compacted(revision, self._compacted)
        self._compacted = revision
        end = revision + 1 - self._first
        # Other keys have no history before the revision: they were written later, or compacted since their last write.
        keys = {row.item.key for row in self._log[:end]}
        self._log = self._log[end:]
        self._first = revision + 1
        for key in keys:
            kept = since(self._newest[key], revision)
            if kept is None:
                del self._newest[key]
                del self._keys[bisect.bisect_left(self._keys, key)]
            else:
                self._newest[key] = kept

    async def compacted_revision(self) -> int:
        return self._compacted

    async def current_revision(self) -> int:
        return self._revision()

    def _revision(self) -> int:
        return self._first + len(self._log) - 1

    # -- the whole state -------------------------------------------------------------------------------------------
    def state(self) -> tuple[Sequence[Item], int, dict[str, int]]:
        """Return all keys in order, the revision, and how many seconds keys with a time to live have left."""
        rows = [row for key in self._keys if not (row := self._newest[key]).deleted]
        now = self._clock.monotonic()
        lifetimes = {row.item.key: max(1, round(row.expires - now)) for row in rows if row.expires is not None}
        return [row.item for row in rows], self._revision(), lifetimes

    def load(self, items: Sequence[Item], revision: int, lifetimes: Mapping[str, int]) -> None:
        """Give an empty store the state of a revision; earlier revisions count as compacted."""
        now = self._clock.monotonic()
        for item in items:
            ttl = lifetimes.get(item.key)
            self._newest[item.key] = Row(item, False, None, now + ttl if ttl is not None else None)
        self._keys = sorted(self._newest)
        self._first, self._compacted = revision + 1, revision
        self._expire_later()

    # -- files ----------------------------------------------------------------------------------------------------
    async def snapshot(self, path: Path) -> None:
        """Write the present state as an SQLite database, which the SQLite engine reads."""
        from control.storage import archive  # and SQLite, which few such stores need

        items, revision, lifetimes = self.state()
        try:
            await asyncio.get_running_loop().run_in_executor(None, archive.write, path, items, revision, lifetimes)
        except OSError as error:
            raise Unavailable(f"cannot write the snapshot {path}: {error}") from error

    async def close(self) -> None:
        self._closed = True
        if self._expiry is not None:
            self._expiry.cancel()
            await asyncio.gather(self._expiry, return_exceptions=True)
        for watch in list(self._watches):
            await watch.aclose()
