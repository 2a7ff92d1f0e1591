"""Watchers of the cache: notices are encoded once and put into each watcher's bounded queue.

Watchers that see every object get a change as it happened, and from each selector's point of view to the others: an
object that begins to match is ADDED, one that ceases to match is DELETED with its last matching state. All of these
forms are made at most once a change, whoever asks first. A watcher that does not keep up is dropped (its iteration
ends); the client comes back with the last resourceVersion it saw.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Literal

from control.storage.entry import Entry, Predicate

Kind = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
QUEUE = 4096
QUEUE_BYTES = 32 << 20
"""Of objects that wait for a watcher. Watchers share them, but what has changed since is kept by the slowest alone."""
CHUNK = 256
CHUNK_BYTES = 64 << 10
"""Objects, and about how many bytes of them, that a watcher is given at once of what there is when it begins."""


class Notice:
    """One line of a watch response; `wire` is `{"type":...,"object":{...}}` and a newline."""

    __slots__ = ("_wire", "entry", "frame", "previous", "type")

    def __init__(self, kind: Kind, entry: Entry) -> None:
        self.type, self.entry = kind, entry
        self._wire: bytes | None = None
        self.frame: bytes | None = None
        """The same in protobuf, once somebody has asked for it."""
        self.previous: Entry | None = None
        """What a modified object was before, for those who see every object and select afterwards."""

    @property
    def wire(self) -> bytes:
        if self._wire is None:
            self._wire = b'{"type":"%b","object":%b}\n' % (self.type.encode(), self.entry.data)
        return self._wire

    @property
    def size(self) -> int:
        return len(self.entry.data)

    def __repr__(self) -> str:
        return f"Notice({self.type}, {self.entry!r})"


class Change:
    """A revision's change to one object; `entry` is None after a deletion, `previous` None before a creation."""

    __slots__ = ("_appears", "_leaves", "at", "entry", "key", "plain", "previous", "revision")

    def __init__(self, key: str, revision: int, entry: Entry | None, previous: Entry | None, at: float = 0.0) -> None:
        self.key, self.revision, self.entry, self.previous, self.at = key, revision, entry, previous, at
        self._appears: Notice | None = None
        self._leaves: Notice | None = None
        self.plain: Notice
        if entry is None:
            assert previous is not None
            self.plain = self._leaves = Notice("DELETED", previous.at(revision))
        elif previous is None:
            self.plain = self._appears = Notice("ADDED", entry)
        else:
            self.plain = Notice("MODIFIED", entry)
            self.plain.previous = previous

    @property
    def size(self) -> int:
        return self.plain.size

    @property
    def unread(self) -> int:
        """Bytes that a comparison with a selector may have to go through."""
        return sum(state.unread for state in (self.entry, self.previous) if state is not None)

    def within(self, prefix: str) -> bool:
        """Say whether the object is in a folder, or is the one of that key."""
        return self.key == prefix or (prefix.endswith("/") and self.key.startswith(prefix))

    def seen_by(self, predicate: Predicate | None) -> Notice | None:
        """Return the change as someone sees it who sees only what matches; None if not at all."""
        if predicate is None:
            return self.plain
        now = self.entry is not None and predicate(self.entry)
        before = self.previous is not None and predicate(self.previous)
        if now and before:
            return self.plain
        if now:
            assert self.entry is not None
            if self._appears is None:
                self._appears = Notice("ADDED", self.entry)
            return self._appears
        if before:
            assert self.previous is not None
            if self._leaves is None:
                self._leaves = Notice("DELETED", self.previous.at(self.revision))
            return self._leaves
        return None


class Watcher:
    """An iterator of lists of notices. It ends when closed or dropped; raises Compacted if its past is gone."""

    def __init__(
        self,
        predicate: Predicate | None,
        bookmarks: bool,
        unregister: Callable[[Watcher], None],
        past: AsyncGenerator[Sequence[Notice], None] | None = None,
        limit: int = QUEUE,
        turn: asyncio.Lock | None = None,
    ) -> None:
        self.predicate, self.bookmarks = predicate, bookmarks
        self._turn = turn
        """Given where the predicate costs much: it is asked when the watcher is read, for one change in a round of the loop."""
        self.dropped = False
        self._unregister, self._past, self._limit = unregister, past, limit
        self._pending: list[Notice | Change] = []
        self._size = 0
        self._closed = False
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def offer(self, change: Change) -> None:
        """Queue a change as this watcher sees it."""
        if self._turn is not None:
            self.push(change)
            return
        notice = change.plain if self.predicate is None else change.seen_by(self.predicate)
        if notice is not None:
            self.push(notice)

    def push(self, notice: Notice | Change) -> None:
        pending = self._pending
        pending.append(notice)
        self._size += notice.size
        if len(pending) > self._limit or (self._size > QUEUE_BYTES and len(pending) > 1):
            self.dropped = True
            self.close()
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> AsyncIterator[Sequence[Notice]]:
        return self

    async def __anext__(self) -> Sequence[Notice]:
        if self._past is not None:
            async for notices in self._past:
                if self._closed:
                    break
                return notices
            self._past = None
        seen: list[Notice] = []
        while not seen:
            while not self._pending:
                if self._failure is not None:
                    raise self._failure
                if self._closed:
                    raise StopAsyncIteration
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
            pending, self._pending, self._size = self._pending, [], 0
            seen = await self._seen(pending)
        return seen

    async def _seen(self, pending: list[Notice | Change]) -> list[Notice]:
        if self._turn is None:
            return pending  # type: ignore[return-value]
        found: list[Notice] = []
        for item in pending:
            notice: Notice | None
            if isinstance(item, Change):
                async with self._turn:
                    notice = item.seen_by(self.predicate)
                    await asyncio.sleep(0)
            else:
                notice = item
            if notice is not None and not self._closed:
                found.append(notice)
        return found

    def close(self, failure: Exception | None = None) -> None:
        """End the iteration; what is still queued is not delivered. A failure is raised to the iterating task."""
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
