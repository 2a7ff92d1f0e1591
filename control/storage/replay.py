"""Changes older than the watch cache's, read from the store's history and shown as a watcher sees them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from control.pacing import Pace
from control.storage.entry import Entry, Predicate
from control.storage.store import Store, Unreadable
from control.storage.watcher import Change, Notice

EntryOf = Callable[[str, bytes, int], Entry | None]


async def replay(
    store: Store, entry_of: EntryOf, after: int, until: int, prefix: str, predicate: Predicate | None
) -> AsyncGenerator[Sequence[Notice], None]:
    """Yield the changes with after < revision <= until; raises Compacted, Unreadable.

    `entry_of` makes an entry of key, value and revision, or returns None for a value that is not JSON.
    """
    async with aclosing(store.watch(prefix, after, previous=True)) as history:
        history.request_progress()
        pace = Pace()
        async for batch in history:
            notices = []
            for event in batch.events:
                if event.revision > until or not (prefix.endswith("/") or event.key == prefix):
                    continue
                if event.failure:
                    raise Unreadable(event.key, event.failure)
                before = event.previous
                await pace.step(len(event.value) + (len(before.value) if before else 0))
                now = None if event.type == "DELETED" else entry_of(event.key, event.value, event.revision)
                old = entry_of(before.key, before.value, before.revision) if before else None
                if now is None and old is None:
                    continue  # an object that could not be read before either: nobody was shown it
                notice = Change(event.key, event.revision, now, old).seen_by(predicate)
                if notice is not None:
                    notices.append(notice)
            if notices:
                yield notices
            if batch.revision >= until:
                return
            history.request_progress()
