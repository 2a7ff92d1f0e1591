"""Watches of the SQLite store: new changes are queued for subscriptions, older ones are read from the history.

A subscription starts at a published revision P. Changes up to P are read from the file in chunks; those after the revision
at which it has read them are queued as they are published, and those between are read from the file too, so there is neither
gap nor overlap. Nothing is queued before, because each commit offers its changes to all subscriptions that have a queue, and
one that only reads the past needs none. If too many changes are queued, the queue is dropped and the subscription reads the
file again from its last revision, until compaction overtakes it (Compacted).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from msgspec.structs import replace

from control.storage import reader as sql
from control.storage.reader import Reader
from control.storage.store import Batch, Event

CHUNK = 500
BACKLOG, BACKLOG_BYTES = 10_000, 32 << 20
"""Maximum number of queued changes of a subscription, and bytes of their values."""


class Feed:
    """Published changes and their subscribers. Belongs to the event loop."""

    def __init__(self, reader: Reader, revision: int) -> None:
        self.reader = reader
        self.revision = revision
        self.subscriptions: set[Subscription] = set()
        """Those whose changes are queued."""
        self.closed = False

    def publish(self, events: Sequence[Event], revision: int) -> None:
        self.revision = max(self.revision, revision)
        if events:
            for subscription in self.subscriptions:
                subscription.offer(events)

    async def close(self) -> None:
        self.closed = True
        for subscription in list(self.subscriptions):
            await subscription.aclose()


class Subscription:
    """One watch (see `control.storage.store.Watch`)."""

    def __init__(self, feed: Feed, prefix: str, after: int, *, previous: bool, backlog: int = BACKLOG) -> None:
        self._feed, self._prefix, self._previous, self._backlog = feed, prefix, previous, backlog
        self._after = after
        self._seen = after
        self._live_from = feed.revision
        self._pending: list[Event] = []
        self._bytes = 0
        self._progress = False
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None

    def offer(self, events: Sequence[Event]) -> None:
        """Queue the changes that match this watch."""
        before = len(self._pending)
        prefix, after = self._prefix, self._after
        new = [event for event in events if event.key.startswith(prefix) and event.revision > after]
        self._pending += new
        self._bytes += sum([len(event.value) for event in new])
        if len(self._pending) > self._backlog or self._bytes > BACKLOG_BYTES:
            self._pending, self._bytes = [], 0
            self._live_from = self._feed.revision
        if len(self._pending) > before or self._seen < self._live_from:
            self._wake()

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        while not (self._closed or self._feed.closed):
            if self._seen < self._live_from:
                if events := await self._catch_up():
                    return Batch(await self._with_previous(events), self._seen)
                if self._progress:
                    self._progress = False
                    return Batch((), self._seen)
            elif self not in self._feed.subscriptions:
                self._live_from = self._feed.revision
                self._feed.subscriptions.add(self)
            elif self._pending:
                events, self._pending, self._bytes = self._pending, [], 0
                self._seen = self._feed.revision
                self._live_from = min(self._live_from, self._seen)
                self._progress = False
                return Batch(await self._with_previous(events), self._seen)
            elif self._progress:
                self._progress = False
                self._seen = max(self._seen, self._feed.revision)
                return Batch((), self._seen)
            else:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
        raise StopAsyncIteration

    async def _catch_up(self) -> list[Event]:
        """Read the next changes up to where the queue begins."""
        prefix, seen, until = self._prefix, self._seen, self._live_from
        events, self._seen = await self._feed.reader.read(lambda c: sql.events(c, prefix, seen, until, CHUNK))
        return events

    async def _with_previous(self, events: Sequence[Event]) -> Sequence[Event]:
        if not self._previous:
            return events
        revisions = [event.revision for event in events if event.type != "ADDED"]
        if not revisions:
            return events
        before = await self._feed.reader.read(lambda c: sql.states_before(c, revisions))
        return [replace(event, previous=before.get(event.revision)) for event in events]

    def request_progress(self) -> None:
        self._progress = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def aclose(self) -> None:
        self._closed = True
        self._feed.subscriptions.discard(self)
        self._pending.clear()
        self._wake()
