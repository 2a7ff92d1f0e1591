"""The one writer thread: group commit, compare-and-swap, expiry.

Requests wait in a queue. The thread takes what is there (up to 100), decides each by itself against an index of the
newest revisions kept in memory, and stores the ones that succeed with a single INSERT, which is its own transaction:
one fsync and one handing-over of the interpreter lock a batch, whatever its size. While the disk syncs the next
batch gathers, so an idle store answers at once and a busy one amortises. Only after the commit are events published
and requests answered, both in one call into the event loop, events first.

A commit that fails leaves its outcome unknown: its requests get Unavailable, the connection and the index are made
anew from the file, and rows found there that were never published are published then.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from control.storage import history, schema
from control.storage.high_water import HighWaterMark
from control.storage.reader import event_of
from control.storage.store import Event, Item, KeyExists, KeyNotFound, RevisionConflict, StoreError, Unavailable

log = logging.getLogger(__name__)

BATCH = 100
Answer = Callable[[Item | None, Exception | None], None]


@dataclass(slots=True)
class Write:
    """One request. `expected` 0 on a delete means any revision; `expires` is a wall-clock time in seconds."""

    kind: Literal["create", "update", "delete"]
    key: str
    value: bytes
    expected: int
    expires: float | None
    answer: Answer


@dataclass(slots=True)
class Compact:
    revision: int
    answer: Answer


class Stop(NamedTuple):
    """The last entry of the queue."""


class _Head(NamedTuple):
    revision: int
    create_revision: int


Outcome = tuple[Answer, Item | None, Exception | None]
Publish = Callable[[Sequence[Event], int, Sequence[Outcome]], None]


class Writer:
    """Owns the writing connection; `publish` is called from the thread with events, revision and outcomes."""

    def __init__(self, path: Path, publish: Publish) -> None:
        self._path, self._publish = path, publish
        self._queue: queue.SimpleQueue[Write | Compact | Stop] = queue.SimpleQueue()
        self._connection: sqlite3.Connection | None = None
        self._heads: dict[str, _Head] = {}
        self._expiries: list[tuple[float, str, int]] = []
        self._sweeping = True
        self.revision = 0
        self._mark = HighWaterMark(path)
        try:
            self._load()
        except BaseException:
            self._mark.close()
            raise
        self._published = self.revision
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, request: Write | Compact) -> None:
        """Queue a request from any thread."""
        self._queue.put(request)

    def stop(self) -> None:
        """Finish what is queued, then end the thread and close the connection. Blocks."""
        self._queue.put(Stop())
        self._thread.join()

    # -- the thread -----------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while True:
            batch = self._take()
            writes = [entry for entry in batch if isinstance(entry, Write)]
            try:
                self._commit(writes)
                for entry in batch:
                    if isinstance(entry, Compact):
                        self._compact(entry)
                if self._sweeping and self._connection is not None:
                    self._sweeping = history.sweep(self._connection)
            except Exception as error:
                log.exception("the storage writer failed; reopening %s", self._path)
                self._close()
                lost = Unavailable(f"storage failed: {error}")
                answers = [entry.answer for entry in batch if not isinstance(entry, Stop)]
                self._publish((), self._published, [(answer, None, lost) for answer in answers])
            if any(isinstance(entry, Stop) for entry in batch):
                self._close()
                self._mark.close()
                return

    def _take(self) -> list[Write | Compact | Stop]:
        """Wait for the first request, an expiry or, in the middle of a sweep, nothing; then take all there is."""
        timeout: float | None = None
        if self._expiries:
            timeout = min(max(self._expiries[0][0] - time.time(), 0.0), 3600.0)
        if self._connection is None:
            timeout = 1.0
        batch: list[Write | Compact | Stop] = []
        with contextlib.suppress(queue.Empty):
            batch.append(
                self._queue.get_nowait() if self._sweeping and self._connection else self._queue.get(True, timeout)
            )
            while len(batch) < BATCH:
                batch.append(self._queue.get_nowait())
        return batch

    def _commit(self, writes: Sequence[Write]) -> None:
        try:
            if self._connection is None:
                self._load()
                self._publish_missed()
            writes = self._expired() + list(writes)
            rows, events, outcomes = self._decide(writes)
            if rows:
                assert self._connection is not None
                self._connection.execute(_insert(len(rows)), [column for row in rows for column in row])
        except (sqlite3.Error, OSError) as error:
            log.error("a commit to %s failed: %s", self._path, error)
            self._close()
            unavailable = Unavailable(f"storage cannot commit: {error}")
            self._publish((), self._published, [(write.answer, None, unavailable) for write in writes])
            return
        self._published = self.revision
        if rows:
            self._mark.note(self.revision)
        if outcomes or events:
            self._publish(events, self.revision, outcomes)

    def _decide(self, writes: Sequence[Write]) -> tuple[list[tuple[Any, ...]], list[Event], list[Outcome]]:
        """Give every write its revision or its error, in order; later ones see earlier ones."""
        rows: list[tuple[Any, ...]] = []
        events: list[Event] = []
        outcomes: list[Outcome] = []
        fresh: dict[int, bytes] = {}
        for write in writes:
            head = self._heads.get(write.key)
            try:
                self._check(write, head, fresh)
            except StoreError as error:
                outcomes.append((write.answer, None, error))
                continue
            self.revision = revision = self.revision + 1
            if write.kind == "delete":
                assert head is not None
                last = self._value(head.revision, fresh)
                del self._heads[write.key]
                rows.append((revision, write.key, head.create_revision, head.revision, 1, None, b""))
                events.append(Event("DELETED", write.key, b"", revision, head.create_revision))
                outcomes.append((write.answer, Item(write.key, last, revision, head.create_revision), None))
                continue
            created = head.create_revision if head else revision
            self._heads[write.key] = _Head(revision, created)
            fresh[revision] = write.value
            before = head.revision if head else 0
            rows.append((revision, write.key, created, before, 0, write.expires, write.value))
            events.append(Event("MODIFIED" if head else "ADDED", write.key, write.value, revision, created))
            outcomes.append((write.answer, Item(write.key, write.value, revision, created), None))
            if write.expires is not None:
                heapq.heappush(self._expiries, (write.expires, write.key, revision))
        return rows, events, outcomes

    def _check(self, write: Write, head: _Head | None, fresh: dict[int, bytes]) -> None:
        if write.kind == "create":
            if head is not None:
                raise KeyExists(write.key, self._item(write.key, head, fresh))
        elif head is None:
            raise KeyNotFound(write.key)
        elif write.expected != head.revision and (write.expected or write.kind == "update"):
            raise RevisionConflict(write.key, write.expected, self._item(write.key, head, fresh))

    def _item(self, key: str, head: _Head, fresh: dict[int, bytes]) -> Item:
        return Item(key, self._value(head.revision, fresh), head.revision, head.create_revision)

    def _value(self, revision: int, fresh: dict[int, bytes]) -> bytes:
        if revision in fresh:
            return fresh[revision]
        assert self._connection is not None
        row = self._connection.execute("SELECT value FROM history WHERE revision = ?", (revision,)).fetchone()
        return bytes(row[0])

    def _expired(self) -> list[Write]:
        """Return deletions of the keys whose time is over and which were not written since."""
        writes: list[Write] = []
        while self._expiries and self._expiries[0][0] <= time.time() and len(writes) < BATCH:
            _, key, revision = heapq.heappop(self._expiries)
            if (head := self._heads.get(key)) and head.revision == revision:
                writes.append(Write("delete", key, b"", revision, None, _ignore))
        return writes

    def _compact(self, request: Compact) -> None:
        error: Exception | None = None
        try:
            if self._connection is None:
                raise Unavailable("storage is being reopened")
            history.begin(self._connection, request.revision)
            self._sweeping = True
        except StoreError as refused:
            error = refused
        except sqlite3.Error as failed:
            error = Unavailable(f"storage cannot compact: {failed}")
        self._publish((), self._published, [(request.answer, None, error)])

    # -- opening and failing --------------------------------------------------------------------------------------
    def _load(self) -> None:
        """Open the connection and build the index of newest revisions and the expiries from the file."""
        self._connection = connection = schema.connect(self._path)
        self._heads.clear()
        self._expiries.clear()
        newest = (
            "SELECT h.key, h.revision, h.create_revision, h.expires FROM history h JOIN"
            " (SELECT max(revision) AS revision FROM history GROUP BY key) n ON h.revision = n.revision"
            " WHERE NOT h.deleted"
        )
        for key, revision, create_revision, expires in connection.execute(newest):
            self._heads[key] = _Head(revision, create_revision)
            if expires is not None:
                self._expiries.append((expires, key, revision))
        heapq.heapify(self._expiries)
        newest_revision, known = schema.newest_revision(connection), self._mark.read()
        if newest_revision < known:
            newest_revision = self._skip_past(known)
        self.revision = max(self.revision, newest_revision)

    def _skip_past(self, known: int) -> int:
        """Go on after the revisions that an older copy of the database does not have.

        The past is marked as compacted, one revision further than any client has seen: so every watcher lists again.
        """
        assert self._connection is not None
        log.warning(
            "%s is older than what this server has acknowledged (revision %d): writes made after it are lost, and"
            " clients list everything again",
            self._path,
            known,
        )
        self._connection.execute("UPDATE marks SET revision = ? WHERE name = 'compacted'", (known + 1,))
        self._sweeping = True
        return known + 1

    def _publish_missed(self) -> None:
        assert self._connection is not None
        rows = self._connection.execute(
            "SELECT revision, key, create_revision, previous_revision, deleted, value FROM history"
            " WHERE revision > ? ORDER BY revision",
            (self._published,),
        ).fetchall()
        if rows:
            self._published = rows[-1][0]
            self._publish([event_of(row) for row in rows], self._published, ())

    def _close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


def _insert(rows: int) -> str:
    return "INSERT INTO history VALUES (?,?,?,?,?,?,?)" + ",(?,?,?,?,?,?,?)" * (rows - 1)


def _ignore(item: Item | None, error: Exception | None) -> None:
    """Nobody waits for an expiry."""
