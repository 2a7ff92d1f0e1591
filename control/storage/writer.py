"""The writer thread: group commit, compaction, and recovery after failures.

Requests wait in a queue. The thread takes up to 100 of them, checks each against the newest revisions (newest.py), and
stores the successful ones with a single INSERT, which is its own transaction: one fsync and one acquisition of the GIL a
batch, whatever its size. While the disk syncs, the next batch accumulates, so latency is low on an idle store and throughput
is high on a busy one. Events are published and requests completed only after the commit, both in one call into the event
loop, events first.

The outcome of a failed commit is unknown: its requests get Unavailable, or NoSpace if the disk is full, which SQLite
detects before the commit. The connection and the index are recreated from the file, and rows found there that were never
published are published then. This is attempted once a second, also without requests, so writes resume as soon as the disk
accepts them; requests in between wait for the next attempt (see recovery). On a full disk the reserve is released, and
deletions continue at once (see full_disk).
"""

from __future__ import annotations

import contextlib
import logging
import queue
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from control.storage import compaction, recovery, schema
from control.storage.database_file import DatabaseFile
from control.storage.full_disk import FullDisk
from control.storage.high_water import HighWaterMark
from control.storage.insertion import insert
from control.storage.newest import NewestRevisions
from control.storage.reader import event_of
from control.storage.requests import Callback, Compact, Expire, Publish, ReleaseMemory, Request, Stop, Write
from control.storage.reserve import Reserve
from control.storage.store import StoreError
from kube import bounded_cache
from kube.clock import Clock
from kube.counters import Histogram, doubled

log = logging.getLogger(__name__)

BATCH, BATCH_BYTES = 100, 4 << 20
"""Maximum number of requests of a batch, and bytes of their values."""
WAITING = 4000
"""Maximum number of requests of the first batch after a failure, which fail together if the disk still does."""
RETRY_SECONDS = 1.0
"""Seconds until the file is opened again after a failure."""
COMMIT_SECONDS = Histogram(
    "wherry_store_commit_duration_seconds",
    "Time to write a batch of changes to the database and to wait for the disk (fsync).",
    buckets=doubled(0.0005, 14),
)


class Writer:
    """Owns the writing connection; `publish` is called from the thread with events, revision and outcomes."""

    def __init__(self, path: Path, publish: Publish, reserve: Reserve, clock: Clock) -> None:
        self._path, self._publish = path, publish
        self._queue: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._connection: sqlite3.Connection | None = None
        self._newest = NewestRevisions(clock)
        self._sweeping = True
        self.trouble: str | None = None
        """Reason why nothing can be written; None if writes succeed."""
        self._failed_at = 0.0
        self._mark = HighWaterMark(path)
        self._anchor: sqlite3.Connection | None = None
        """A connection that keeps the log's index through failures (see recovery)."""
        self._file = DatabaseFile(path)
        self._disk = FullDisk(path, self._file, reserve)
        try:
            self._connection = self._connect()
            self._anchor = schema.connect(path, read_only=True)
            self._load(self._connection)
        except BaseException:
            self._close()
            self._release()
            self.close_file()
            raise
        self._published = self.revision
        self._set_trouble()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()
        bounded_cache.on_forget(self._release_memory)

    def _release_memory(self) -> None:
        # A pager keeps up to 2 MB: after a load they are pages that are not read again.
        self._queue.put(ReleaseMemory())

    def put(self, request: Write | Compact | Expire) -> None:
        """Queue a request from any thread."""
        self._queue.put(request)

    @property
    def revision(self) -> int:
        """The last revision that was assigned."""
        return self._newest.revision

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return self._queue.qsize()

    def stop(self) -> None:
        """Execute the queued requests, then end the thread and close the connection. Blocks."""
        self._queue.put(Stop())
        self._thread.join()

    # -- the thread -----------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while True:
            batch = self._next_batch()
            try:
                self._process(batch)
            except Exception as error:
                self._fail(error, [entry.callback for entry in batch if isinstance(entry, Write | Compact | Expire)])
            if any(isinstance(entry, Stop) for entry in batch):
                self._close()
                self._release()
                return

    def _next_batch(self) -> list[Request]:
        """Wait for the first request (during a sweep, do not wait), then return the queued requests."""
        batch: list[Request] = []
        most, size = (BATCH, BATCH_BYTES) if self._connection else (WAITING, sys.maxsize)
        with contextlib.suppress(queue.Empty):
            if self._connection is None:
                time.sleep(max(self._failed_at + RETRY_SECONDS - time.monotonic(), 0.0))
            elif (wait := self._wait()) != 0:
                batch.append(self._queue.get(True, wait))
            while len(batch) < most and size > 0:
                batch.append(entry := self._queue.get_nowait())
                size -= len(entry.value) if isinstance(entry, Write) else 0
        return batch

    def _wait(self) -> float | None:
        """Return the seconds to wait for a request; None without limit."""
        if self._disk.full:
            return self._disk.wait()
        return 0 if self._sweeping else None

    def until_next_expiry(self) -> float:
        """Return the seconds until the next key expires, at most an hour."""
        return self._newest.expiries.until_next()

    def _process(self, batch: Sequence[Request]) -> None:
        """Execute a batch; raises sqlite3.Error, OSError if the disk cannot be written."""
        if self._connection is None:
            self._reopen()
        for writes in _parts([entry for entry in batch if isinstance(entry, Write)]):
            self._commit(writes)
        for entry in batch:
            if isinstance(entry, Compact):
                self._compact(entry)
        expired = [(entry.callback, None, None) for entry in batch if isinstance(entry, Expire)]
        if expired:
            self._publish((), self._published, expired)
        assert self._connection is not None
        release = any(isinstance(entry, ReleaseMemory) for entry in batch)
        if self._disk.full:
            if self._disk.step(self._connection, self._published):
                self._sweeping = True
                self._set_trouble()
        elif self._sweeping:
            self._sweeping = compaction.sweep(self._connection)
            release |= not self._sweeping  # the page cache still has the pages of the deleted history
        if release:
            self._connection.execute("PRAGMA shrink_memory")

    def _commit(self, writes: Sequence[Write]) -> None:
        assert self._connection is not None
        full = self._disk.error() if self._disk.full else None
        rows, events, outcomes = self._newest.decide(self._newest.expired(BATCH) + list(writes), self._connection, full)
        if rows:
            begun = time.perf_counter()
            insert(self._connection, rows)
            COMMIT_SECONDS.observe(time.perf_counter() - begun)
            # Not without rows: revisions of a failed commit are not in the file, and a list at one would fail.
            self._published = self.revision
            self._mark.record(self.revision)
        if outcomes or events:
            self._publish(events, self._published, outcomes)

    def _compact(self, request: Compact) -> None:
        assert self._connection is not None
        error: Exception | None = None
        try:
            compaction.start_compaction(self._connection, request.revision)
            self._sweeping = True
        except StoreError as refused:
            error = refused
        self._publish((), self._published, [(request.callback, None, error)])

    # -- opening and failing --------------------------------------------------------------------------------------
    def _reopen(self) -> None:
        """Open the file again after a failure, if the disk can be written, and publish commits that were not published."""
        self._connection = connection = self._connect()
        recovery.checkpoint_log(connection, self._file, self._path)
        recovery.check_writable(connection)
        self._load(connection)
        self._publish_missed()
        self._set_trouble()
        if self.trouble is None:
            log.warning("%s can be written again", self._path)

    def _connect(self) -> sqlite3.Connection:
        connection = schema.connect(self._path)
        self._disk.limit_log(connection)
        return connection

    def _set_trouble(self) -> None:
        self.trouble = str(self._disk.error()) if self._disk.full else None

    def _fail(self, error: Exception, callbacks: Sequence[Callback]) -> None:
        """Close the file until the next attempt, and fail the requests of the batch that have no result yet."""
        self._close()
        released = recovery.is_full(error) and self._disk.release_reserve(self._published)
        # With the space of the reserve the file can be opened at once.
        self._failed_at = -RETRY_SECONDS if released else time.monotonic()
        lost = recovery.commit_error(error)
        if self.trouble != str(lost):
            unexpected = not isinstance(error, (sqlite3.Error, OSError))
            name = getattr(error, "sqlite_errorname", "no error of SQLite's")
            log.error("%s cannot be written: %s (%s)", self._path, error, name, exc_info=error if unexpected else None)
        self.trouble = str(lost)
        self._publish((), self._published, [(callback, None, lost) for callback in callbacks])

    def _load(self, connection: sqlite3.Connection) -> None:
        self._newest.load(connection)
        newest_revision, known = schema.newest_revision(connection), self._mark.read()
        if newest_revision < known:
            newest_revision = self._skip_lost_revisions(connection, known)
        self._newest.revision = max(self.revision, newest_revision)

    def _skip_lost_revisions(self, connection: sqlite3.Connection, known: int) -> int:
        """Continue after the revisions that an older copy of the database does not have.

        All revisions up to one more than any client has seen are marked as compacted, so every watcher lists again.
        """
        log.warning(
            "%s is older than the newest revision that this server has acknowledged (%d): later writes are lost, and"
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


def _parts(writes: Sequence[Write]) -> Iterator[Sequence[Write]]:
    """Yield the writes in parts of about BATCH_BYTES; without writes one empty part, for expiries.

    Only the first batch after a failure is larger.
    """
    start = size = 0
    for index, write in enumerate(writes, 1):
        size += len(write.value)
        if size >= BATCH_BYTES:
            yield writes[start:index]
            start, size = index, 0
    if start < len(writes) or not writes:
        yield writes[start:]
