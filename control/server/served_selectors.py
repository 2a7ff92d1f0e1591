"""Selectors on fields that a conversion webhook creates: stored objects may lack them, so objects are converted first.

Names and namespaces are selected as always. For the rest a list goes through all objects and is cut into pages afterwards, and
a watch compares each object with what it was before the change, both as the served version shows them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from control.event_loop.pacing import TimeSlice
from control.registry.strategy import Strategy
from control.storage.entry import Entry
from control.storage.listing import Listing, encode_token
from control.storage.selection import select_entries
from control.storage.watcher import WatchEvent
from kube.selectors import FieldSelector

STORED = frozenset({"metadata.name", "metadata.namespace"})
"""Fields that every version has under the same name."""


class ServedSelector(msgspec.Struct, frozen=True):
    """Selects by what the served version of a custom resource shows."""

    strategy: Strategy
    selector: FieldSelector

    def matches(self, entry: Entry) -> bool:
        return self.selector.matches(self.strategy.fields(entry.parts()))

    async def page(self, found: Listing, prefix: str, limit: int) -> Listing:
        """Return the matching objects of a whole list, at most `limit` of them (0: all)."""
        entries, after = await select_entries(
            await self.strategy.view(found.entries), self.matches, costly=True, most=limit
        )
        if not after:
            return Listing(entries, found.revision)
        return Listing(entries, found.revision, encode_token(found.revision, entries[-1].key.removeprefix(prefix)))

    async def watch_events(self, watch_events: Sequence[WatchEvent]) -> list[WatchEvent]:
        """Return the watch events of a watcher with a selector for changes to all objects."""
        found, time_slice = list[WatchEvent](), TimeSlice()
        for served, watch_event in zip(await self.strategy.view_events(watch_events), watch_events, strict=True):
            await time_slice.step(len(served.entry.data))
            if served.type == "BOOKMARK":
                found.append(served)
                continue
            now = served.type != "DELETED" and self.matches(served.entry)
            before = served.entry if served.type == "DELETED" else None
            if watch_event.previous is not None:
                before = (await self.strategy.view([watch_event.previous]))[0]
            if before is not None and not self.matches(before):
                before = None
            if now:
                found.append(
                    served if before is not None or served.type == "ADDED" else WatchEvent("ADDED", served.entry)
                )
            elif before is not None:
                gone = before if served.type == "DELETED" else before.at(watch_event.entry.revision)
                found.append(WatchEvent("DELETED", gone))
        return found


def split(strategy: Strategy, fields: FieldSelector) -> tuple[FieldSelector, ServedSelector | None]:
    """Return what is selected of stored objects, and what of converted ones (None: nothing)."""
    if strategy.stored_as_served or not strategy.fields_by_webhook:
        return fields, None
    shown = tuple(term for term in fields.terms if term[0] not in STORED)
    if not shown:
        return fields, None
    return FieldSelector(tuple(t for t in fields.terms if t[0] in STORED)), ServedSelector(
        strategy, FieldSelector(shown)
    )
