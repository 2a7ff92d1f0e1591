"""Records the changes of a cluster's store, with their authors, from the beginning of a test.

A record is limited: the oldest changes become part of the state at its beginning.
"""

from __future__ import annotations

from collections import deque

import msgspec

from control.assembly.api_server import ApiServer
from control.storage.memory import MemoryStore
from control.storage.memory_rows import Row
from control.storage.store import Item
from kube.clock import Clock
from wherry.testing.history.history import Change, History
from wherry.testing.history.requests import author, with_authors
from wherry.testing.saving.objects import saved

MOST_CHANGES, MOST_BYTES = 50_000, 64 << 20


class Recorder:
    """The record of one cluster."""

    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._changes: deque[tuple[Change, Item]] = deque()
        store.subscribe(self._written)
        self.begin()

    @classmethod
    def of(cls, api: ApiServer, store: MemoryStore) -> Recorder:
        """Record the requests to a server."""
        api.pipeline.add_middleware(with_authors)
        return cls(store, api.clock)

    def begin(self) -> None:
        """Begin a record with the present state."""
        items, self._revision, _ = self._store.state()
        self._objects = {item.key: item for item in items}
        self._begin = self._clock.now()
        self._changes.clear()
        self._bytes = self._dropped = 0

    def history(self, test: str) -> History:
        """Return the record of a test."""
        changes = [change for change, _ in self._changes]
        objects = saved(self._objects.values(), {})
        return History(test, self._revision, self._begin, objects, changes, self._dropped)

    def _written(self, row: Row) -> None:
        item, by = row.item, author()
        kind = row.event(previous=False).type
        value = msgspec.Raw(b"null" if row.deleted else item.value)
        change = Change(item.revision, kind, item.key, self._clock.now(), by.user, by.verb, by.agent, value)
        self._changes.append((change, item))
        self._bytes += len(item.value)
        while len(self._changes) > MOST_CHANGES or self._bytes > MOST_BYTES:
            self._drop()

    def _drop(self) -> None:
        """Make the oldest change a part of the beginning."""
        change, item = self._changes.popleft()
        if change.type == "DELETED":
            self._objects.pop(item.key, None)
        else:
            self._objects[item.key] = item
        self._revision, self._begin = change.revision, change.time
        self._bytes -= len(item.value)
        self._dropped += 1
