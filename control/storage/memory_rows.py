"""Rows of the store in memory: a write each, linked to the one before of its key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from control.storage.store import Event, Item


@dataclass(frozen=True, slots=True)
class Row:
    """One write: the state of a key from a revision on."""

    item: Item
    deleted: bool
    before: Row | None
    expires: float | None = None
    """Time of the clock (monotonic) at which the key is deleted."""

    def event(self, *, previous: bool) -> Event:
        item, before = self.item, self.before
        living = before is not None and not before.deleted
        kind = "DELETED" if self.deleted else "MODIFIED" if living else "ADDED"
        known = before.item if previous and before is not None and living else None
        return Event(kind, item.key, item.value, item.revision, item.create_revision, known)  # type: ignore[arg-type]


Rows: TypeAlias = list[Row]
CHUNK = 500
"""Maximum number of changes of one batch of a watch."""


def since(row: Row, revision: int) -> Row | None:
    """Return a key's history without what was superseded at a revision; None if nothing is left."""
    if row.item.revision <= revision:
        return None if row.deleted else row if row.before is None else Row(row.item, False, None, row.expires)
    rows: list[Row] = []
    each: Row | None = row
    while each is not None:
        rows.append(each)
        if each.item.revision <= revision:
            break
        each = each.before
    if rows[-1].item.revision <= revision and rows[-1].deleted:
        rows.pop()
    kept: Row | None = None
    for each in reversed(rows):
        kept = Row(each.item, each.deleted, kept, each.expires)
    return kept
