"""Watchers of the cache: events are encoded once and put into each watcher's bounded queue.

Watchers without a selector get each change as it happened. For a selector, an object that starts to match is ADDED, one that
stops matching is DELETED with its last matching state (evaluation.py). Each of these forms is created at most once a change
and shared. A watcher whose queue overflows is dropped (its iteration ends); the client resumes with the last resourceVersion
it received.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Literal

from control.storage.entry import Entry, Predicate

Kind = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
QUEUE = 4096
QUEUE_BYTES = 32 << 20
"""Maximum bytes of queued objects. Watchers share the objects, but only the slowest one keeps outdated states in memory."""
CHUNK = 256
CHUNK_BYTES = 64 << 10
"""Maximum number and approximate bytes of the initial objects that a watcher receives at once."""


class WatchEvent:
    """One line of a watch response; `wire` is `{"type":...,"object":{...}}` and a newline."""

    __slots__ = ("_wire", "entry", "frame", "previous", "size", "type")

    def __init__(self, kind: Kind, entry: Entry) -> None:
        self.type, self.entry, self.size = kind, entry, len(entry.data)
        self._wire: bytes | None = None
        self.frame: bytes | None = None
        """The protobuf form, cached once it has been requested."""
        self.previous: Entry | None = None
        """Previous state of a modified object, for consumers that select later."""

    @property
    def wire(self) -> bytes:
        if self._wire is None:
            self._wire = b'{"type":"%b","object":%b}\n' % (self.type.encode(), self.entry.data)
        return self._wire

    def __repr__(self) -> str:
        return f"WatchEvent({self.type}, {self.entry!r})"


class Change:
    """A revision's change to one object; `entry` is None after a deletion, `previous` None before a creation."""

    __slots__ = (
        "_added",
        "_deleted",
        "_same_fields",
        "_same_labels",
        "at",
        "entry",
        "key",
        "plain",
        "previous",
        "revision",
    )

    def __init__(self, key: str, revision: int, entry: Entry | None, previous: Entry | None, at: float = 0.0) -> None:
        self.key, self.revision, self.entry, self.previous, self.at = key, revision, entry, previous, at
        self._added: WatchEvent | None = None
        self._deleted: WatchEvent | None = None
        self._same_labels: bool | None = None
        self._same_fields: bool | None = None
        self.plain: WatchEvent
        if entry is None:
            assert previous is not None
            self.plain = self._deleted = WatchEvent("DELETED", previous.at(revision))
        elif previous is None:
            self.plain = self._added = WatchEvent("ADDED", entry)
        else:
            self.plain = WatchEvent("MODIFIED", entry)
            self.plain.previous = previous

    @property
    def size(self) -> int:
        return self.plain.size

    @property
    def unread(self) -> int:
        """Bytes that a comparison with a selector may have to go through."""
        return sum(state.unread for state in (self.entry, self.previous) if state is not None)

    def within(self, prefix: str) -> bool:
        """Return whether the object is in a folder, or has that key."""
        return self.key == prefix or (prefix.endswith("/") and self.key.startswith(prefix))

    def same_labels(self) -> bool:
        """Return whether the object has the labels that it had before."""
        if self._same_labels is None:
            entry, previous = self.entry, self.previous
            self._same_labels = entry is not None and previous is not None and entry.labels == previous.labels
        return self._same_labels

    def same_fields(self) -> bool:
        """Return whether the object has the selectable fields that it had before."""
        if self._same_fields is None:
            entry, previous = self.entry, self.previous
            self._same_fields = entry is not None and previous is not None and entry.fields == previous.fields
        return self._same_fields

    def event_for(self, predicate: Predicate | None) -> WatchEvent | None:
        """Return the event for a watcher of objects that match; None if the object matches neither before nor after."""
        if predicate is None:
            return self.plain
        now = self.entry is not None and predicate(self.entry)
        return self.event(now=now, before=self.previous is not None and predicate(self.previous))

    def event(self, *, now: bool, before: bool) -> WatchEvent | None:
        """Return the event for watchers that select the object now, or did before; None for others."""
        if now and before:
            return self.plain
        if now:
            assert self.entry is not None
            if self._added is None:
                self._added = WatchEvent("ADDED", self.entry)
            return self._added
        if before:
            assert self.previous is not None
            if self._deleted is None:
                self._deleted = WatchEvent("DELETED", self.previous.at(self.revision))
            return self._deleted
        return None


class Watcher:
    """Iterator of lists of watch events. It ends if closed or dropped; raises Compacted if its history is compacted."""

    def __init__(
        self,
        since: int,
        *,
        bookmarks: bool,
        unregister: Callable[[Watcher], None],
        past: AsyncGenerator[Sequence[WatchEvent], None] | None = None,
        limit: int = QUEUE,
    ) -> None:
        self.since, self.bookmarks = since, bookmarks
        """`since` is the revision up to which `past` and the first pushes have everything."""
        self.dropped = False
        self._unregister, self._past, self._limit = unregister, past, limit
        self._pending: list[WatchEvent] = []
        self._size = 0
        self._closed = False
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def push(self, watch_event: WatchEvent) -> None:
        """Queue an event; a watcher that has too many is dropped."""
        pending = self._pending
        pending.append(watch_event)
        self._size += watch_event.size
        if len(pending) > self._limit or (self._size > QUEUE_BYTES and len(pending) > 1):
            self.drop()
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def drop(self) -> None:
        """End the iteration because the watcher has too many changes."""
        self.dropped = True
        self.close()

    def __aiter__(self) -> AsyncIterator[Sequence[WatchEvent]]:
        return self

    async def __anext__(self) -> Sequence[WatchEvent]:
        if self._past is not None:
            async for watch_events in self._past:
                if self._closed:
                    break
                return watch_events
            self._past = None
        while not self._pending:
            if self._failure is not None:
                raise self._failure
            if self._closed:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        pending, self._pending, self._size = self._pending, [], 0
        return pending

    def close(self, failure: Exception | None = None) -> None:
        """End the iteration; queued events are not delivered. A failure is raised to the iterating task."""
        self._closed = True
        self._failure = failure
        self._pending = []
        self._unregister(self)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def aclose(self) -> None:
        self.close()
        if self._past is not None:
            await self._past.aclose()
