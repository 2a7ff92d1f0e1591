"""Initial events of a watch: the current objects, or the changes since its revision.

Changes that the watch cache has dropped are read from the store's history, as a watcher would have received them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence

from control.event_loop.pacing import TimeSlice
from control.storage.entry import Entry, Predicate
from control.storage.history_reads import HistoryReads
from control.storage.selection import select_entries
from control.storage.store import Store, Unreadable
from control.storage.watcher import CHUNK, CHUNK_BYTES, Change, WatchEvent

EntryOf = Callable[[str, bytes, int], Entry | None]


async def replay(
    store: Store,
    reads: HistoryReads,
    owner: str,
    entry_of: EntryOf,
    after: int,
    until: int,
    prefix: str,
    predicate: Predicate | None,
) -> AsyncGenerator[Sequence[WatchEvent], None]:
    """Yield the changes with after < revision <= until; raises Compacted, Unreadable, Unavailable.

    `entry_of` creates an entry from key, value and revision, or returns None for a value that is not JSON.
    """
    time_slice = TimeSlice()
    while after < until:
        batch = await reads.read(store, owner, prefix, after, until)
        watch_events = []
        for event in batch.events:
            if event.revision > until or not (prefix.endswith("/") or event.key == prefix):
                continue
            if event.failure:
                raise Unreadable(event.key, event.failure)
            before = event.previous
            await time_slice.step(len(event.value) + (len(before.value) if before else 0))
            now = None if event.type == "DELETED" else entry_of(event.key, event.value, event.revision)
            old = entry_of(before.key, before.value, before.revision) if before else None
            if now is None and old is None:
                continue  # an object that is not JSON, before and after
            watch_event = Change(event.key, event.revision, now, old).event_for(predicate)
            if watch_event is not None:
                watch_events.append(watch_event)
        if watch_events:
            yield watch_events
        after = batch.revision


async def replay_changes(changes: Sequence[Change], predicate: Predicate) -> AsyncGenerator[Sequence[WatchEvent], None]:
    """Yield the events of recent changes for a predicate."""
    time_slice, watch_events = TimeSlice(), []
    for change in changes:
        await time_slice.step(change.unread)
        if (watch_event := change.event_for(predicate)) is not None:
            watch_events.append(watch_event)
    if watch_events:
        yield watch_events


async def initial_events(
    entries: Sequence[Entry], end: WatchEvent | None, predicate: Predicate | None, *, costly: bool
) -> AsyncGenerator[Sequence[WatchEvent], None]:
    """Yield the present objects as ADDED, and the bookmark `end` of sendInitialEvents."""
    if predicate is not None:
        entries, _ = await select_entries(entries, predicate, costly=costly)
    start = size = 0
    for index, entry in enumerate(entries, 1):
        size += len(entry.data)
        # In chunks: these events are not shared, and a thousand watchers that do not read would keep all of theirs.
        if size >= CHUNK_BYTES or index - start == CHUNK or index == len(entries):
            yield [WatchEvent("ADDED", each) for each in entries[start:index]]
            start, size = index, 0
    if end is not None:
        yield [end]
