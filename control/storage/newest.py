"""The newest revision of each key, in memory, and what a batch of writes does to it.

Compare-and-swap is decided here, before anything is written: the file takes rows of all writes that succeed. Deletions and
conflicts return the stored object, which is read from the file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from control.storage.expiries import Expiries
from control.storage.insertion import Row
from control.storage.requests import Outcome, Write
from control.storage.store import Event, Item, KeyExists, KeyNotFound, RevisionConflict, StoreError
from kube.clock import Clock
from kube.shrinking import shrunk


class _Head(msgspec.Struct, array_like=True, frozen=True, gc=False):
    revision: int
    create_revision: int


_HEADS = """
SELECT json_group_object(h.key, json_array(h.revision, h.create_revision)),
    json_group_array(json_array(h.key, h.revision, h.expires)) FILTER (WHERE h.expires IS NOT NULL)
FROM history h JOIN (SELECT max(revision) AS revision FROM history GROUP BY key) n ON h.revision = n.revision
WHERE NOT h.deleted
"""
"""One row: the interpreter's lock is needed for each, and during the start modules are imported at the same time."""
_heads = msgspec.json.Decoder(dict[str, _Head])
_expiries = msgspec.json.Decoder(list[tuple[str, int, float]])


class Decided(NamedTuple):
    """Results of a batch: rows to store, then events and outcomes to publish."""

    rows: list[Row]
    events: list[Event]
    outcomes: list[Outcome]


class NewestRevisions:
    """Revisions by key, and the expiries of keys that have one."""

    def __init__(self, clock: Clock) -> None:
        self.revision = 0
        """The last revision that was assigned."""
        self.expiries = Expiries(clock)
        self._heads: dict[str, _Head] = {}

    def load(self, connection: sqlite3.Connection) -> None:
        """Read the newest revisions and the expiries from the file."""
        self._heads.clear()
        self.expiries.clear()
        heads, expiries = connection.execute(_HEADS).fetchone()
        self._heads = _heads.decode(heads)
        for key, revision, expires in _expiries.decode(expiries):
            self.expiries.add(key, revision, expires)

    def decide(self, writes: Sequence[Write], connection: sqlite3.Connection, full: StoreError | None) -> Decided:
        """Assign each write its revision or its error, in order; later ones see the effect of earlier ones.

        `full` is the error of all writes but deletions, if there is one.
        """
        found = Decided([], [], [])
        values = _Values(connection)
        for write in writes:
            head = self._heads.get(write.key)
            refused = full if full is not None and write.kind != "delete" else _refused(write, head, values)
            if refused is not None:
                found.outcomes.append((write.callback, None, refused))
                continue
            self.revision = revision = self.revision + 1
            if head is not None and write.kind == "delete":
                self._delete(write, head, values, found)
                continue
            created = head.create_revision if head else revision
            self._heads[write.key] = _Head(revision, created)
            values.batch[revision] = write.value
            before = head.revision if head else 0
            found.rows.append(Row(revision, write.key, created, before, 0, write.expires, write.value))
            found.events.append(Event("MODIFIED" if head else "ADDED", write.key, write.value, revision, created))
            found.outcomes.append((write.callback, Item(write.key, write.value, revision, created), None))
            if write.expires is not None:
                self.expiries.add(write.key, revision, write.expires)
        return found

    def _delete(self, write: Write, head: _Head, values: _Values, found: Decided) -> None:
        revision, created = self.revision, head.create_revision
        last = values.of(head.revision)
        del self._heads[write.key]
        self._heads = shrunk(self._heads)
        found.rows.append(Row(revision, write.key, created, head.revision, 1, None, b""))
        found.events.append(Event("DELETED", write.key, b"", revision, created))
        found.outcomes.append((write.callback, Item(write.key, last, revision, created), None))

    def expired(self, most: int) -> list[Write]:
        """Return deletions of at most so many expired keys that have not been written since."""
        writes: list[Write] = []
        while len(writes) < most and (expired := self.expiries.pop_expired()):
            key, revision = expired
            if (head := self._heads.get(key)) and head.revision == revision:
                writes.append(Write("delete", key, b"", revision, None, _ignore))
        return writes


class _Values:
    """Objects by revision: those of the batch, and stored ones."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.batch: dict[int, bytes] = {}

    def of(self, revision: int) -> bytes:
        if revision in self.batch:
            return self.batch[revision]
        row = self._connection.execute("SELECT value FROM history WHERE revision = ?", (revision,)).fetchone()
        return bytes(row[0])


def _refused(write: Write, head: _Head | None, values: _Values) -> StoreError | None:
    """Return the error of a write that cannot be made, None if it can.

    The error is not raised here: its traceback would hold the batch, which holds the error, until a garbage collection.
    """
    if head is None:
        return None if write.kind == "create" else KeyNotFound(write.key)
    if write.kind != "create" and (write.expected == head.revision or (not write.expected and write.kind == "delete")):
        return None
    stored = Item(write.key, values.of(head.revision), head.revision, head.create_revision)
    if write.kind == "create":
        return KeyExists(write.key, stored)
    return RevisionConflict(write.key, write.expected, stored)


def _ignore(item: Item | None, error: Exception | None) -> None:
    """Nobody waits for an expiry."""
