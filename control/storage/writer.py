"""The one writer thread: group commit, compare-and-swap, expiry.

Requests wait in a queue. The thread takes what is there (up to 100), decides each by itself against an index of the
newest revisions kept in memory, and stores the ones that succeed with a single INSERT, which is its own transaction:
one fsync and one handing-over of the interpreter lock a batch, whatever its size. While the disk syncs the next
batch gathers, so an idle store answers at once and a busy one amortises. Only after the commit are events published
and requests answered, both in one call into the event loop, events first.

A commit that fails leaves its outcome unknown: its requests get Unavailable, or NoSpace where the disk is full, which
SQLite notices before there is anything to commit. The connection and the index are recreated from the file, and rows found
there that were never published are published then. That is tried once a second, by itself too, so writes go on as soon as
the disk takes them; what is asked for in between waits for that one attempt (see recovery).
"""

from __future__ import annotations

import contextlib
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from control.storage import history, recovery, schema
from control.storage.expiries import Expiries
from control.storage.high_water import HighWaterMark
from control.storage.on_disk import OnDisk
from control.storage.reader import event_of
from control.storage.requests import Answer, Compact, Outcome, Publish, Stop, Write
from control.storage.store import Event, Item, KeyExists, KeyNotFound, RevisionConflict, StoreError
from kube.shrinking import shrunk

log = logging.getLogger(__name__)

BATCH = 100
WAITING = 4000
"""Requests taken at once after a failure; SQLite takes no more values in one statement."""
RETRY_SECONDS = 1.0
"""How long after a failure the file is opened again."""


class _Head(NamedTuple):
    revision: int
    create_revision: int


class Writer:
    """Owns the writing connection; `publish` is called from the thread with events, revision and outcomes."""

    def __init__(self, path: Path, publish: Publish) -> None:
        self._path, self._publish = path, publish
        self._queue: queue.SimpleQueue[Write | Compact | Stop] = queue.SimpleQueue()
        self._connection: sqlite3.Connection | None = None
        self._heads: dict[str, _Head] = {}
        self._expiries = Expiries()
        self._sweeping = True
        self.revision = 0
        self.trouble: str | None = None
        """Why nothing can be written; None while all is well."""
        self._failed_at = 0.0
        self._mark = HighWaterMark(path)
        self._anchor: sqlite3.Connection | None = None
        """Keeps the log's index through failures (see recovery)."""
        self._file = OnDisk(path)
        try:
            self._connection = schema.connect(path)
            self._anchor = schema.connect(path, read_only=True)
            self._load(self._connection)
        except BaseException:
            self._close()
            self._release()
            self.close_file()
            raise
        self._published = self.revision
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, request: Write | Compact) -> None:
        """Queue a request from any thread."""
        self._queue.put(request)

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return self._queue.qsize()

    def stop(self) -> None:
        """Finish what is queued, then end the thread and close the connection. Blocks."""
        self._queue.put(Stop())
        self._thread.join()

    # -- the thread -----------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while True:
            batch = self._take()
            try:
                self._work(batch)
            except Exception as error:
                self._fail(error, [entry.answer for entry in batch if not isinstance(entry, Stop)])
            if any(isinstance(entry, Stop) for entry in batch):
                self._close()
                self._release()
                return

    def _take(self) -> list[Write | Compact | Stop]:
        """Wait for the first request, an expiry or, in the middle of a sweep, nothing; then take all there is."""
        batch: list[Write | Compact | Stop] = []
        with contextlib.suppress(queue.Empty):
            if self._connection is None:
                time.sleep(max(self._failed_at + RETRY_SECONDS - time.monotonic(), 0.0))
            elif not self._sweeping:
                batch.append(self._queue.get(True, self._expiries.until_next()))
            while len(batch) < (BATCH if self._connection else WAITING):
                batch.append(self._queue.get_nowait())
        return batch

    def _work(self, batch: Sequence[Write | Compact | Stop]) -> None:
        """Do what is asked for; raises sqlite3.Error, OSError where the disk does not take it."""
        if self._connection is None:
            self._reopen()
        self._commit([entry for entry in batch if isinstance(entry, Write)])
        for entry in batch:
            if isinstance(entry, Compact):
                self._compact(entry)
        if self._sweeping and self._connection is not None:
            self._sweeping = history.sweep(self._connection)

    def _commit(self, writes: Sequence[Write]) -> None:
        rows, events, outcomes = self._decide(self._expired() + list(writes))
        if rows:
            assert self._connection is not None
            self._connection.execute(_insert(len(rows)), [column for row in rows for column in row])
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
                self._heads = shrunk(self._heads)
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
                self._expiries.add(write.key, revision, write.expires)
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
        while len(writes) < BATCH and (due := self._expiries.due()):
            key, revision = due
            if (head := self._heads.get(key)) and head.revision == revision:
                writes.append(Write("delete", key, b"", revision, None, _ignore))
        return writes

    def _compact(self, request: Compact) -> None:
        assert self._connection is not None
        error: Exception | None = None
        try:
            history.begin(self._connection, request.revision)
            self._sweeping = True
        except StoreError as refused:
            error = refused
        self._publish((), self._published, [(request.answer, None, error)])

    # -- opening and failing --------------------------------------------------------------------------------------
    def _reopen(self) -> None:
        """Open the file again after a failure, if the disk takes writes, and publish what was not."""
        self._connection = connection = schema.connect(self._path)
        recovery.settle(connection, self._file, self._path)
        recovery.prove(connection)
        self._load(connection)
        self._publish_missed()
        self.trouble = None
        log.warning("%s can be written again", self._path)

    def _fail(self, error: Exception, answers: Sequence[Answer]) -> None:
        """Close the file until the next attempt. Those who were answered before the failure keep their answers."""
        self._close()
        self._failed_at = time.monotonic()
        lost = recovery.failure(error)
        if self.trouble != str(lost):
            unforeseen = not isinstance(error, (sqlite3.Error, OSError))
            name = getattr(error, "sqlite_errorname", "no error of SQLite's")
            log.error("%s cannot be written: %s (%s)", self._path, error, name, exc_info=error if unforeseen else None)
        self.trouble = str(lost)
        self._publish((), self._published, [(answer, None, lost) for answer in answers])

    def _load(self, connection: sqlite3.Connection) -> None:
        """Build the index of newest revisions and the expiries from the file."""
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
                self._expiries.add(key, revision, expires)
        newest_revision, known = schema.newest_revision(connection), self._mark.read()
        if newest_revision < known:
            newest_revision = self._skip_past(connection, known)
        self.revision = max(self.revision, newest_revision)

    def _skip_past(self, connection: sqlite3.Connection, known: int) -> int:
        """Go on after the revisions that an older copy of the database does not have.

        The past is marked as compacted, one revision further than any client has seen: so every watcher lists again.
        """
        log.warning(
            "%s is older than what this server has acknowledged (revision %d): writes made after it are lost, and"
            " clients list everything again",
            self._path,
            known,
        )
        connection.execute("UPDATE marks SET revision = ? WHERE name = 'compacted'", (known + 1,))
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

    def _release(self) -> None:
        if self._anchor is not None:
            self._anchor.close()
        self._mark.close()

    def close_file(self) -> None:
        """Close the descriptors of the file, after all its connections."""
        self._file.close()


def _insert(rows: int) -> str:
    return "INSERT INTO history VALUES (?,?,?,?,?,?,?)" + ",(?,?,?,?,?,?,?)" * (rows - 1)


def _ignore(item: Item | None, error: Exception | None) -> None:
    """Nobody waits for an expiry."""
