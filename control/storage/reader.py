"""Reads of the SQLite file in threads, each in one read transaction.

In WAL mode a reader sees a commit only after its log was synced, so its result cannot be lost; the transaction makes the
reported revision that of the rows. There are two threads, so that a long listing does not delay other reads.

A read that fails because of the disk makes `trouble` report it until the same read succeeds. It is retried once a second,
because clients mostly read from the watch cache, so the next request for the same rows may come much later. SQLite
reports an unreadable block (EIO) as a malformed database.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from control.storage import schema
from control.storage.store import Compacted, Event, FutureRevision, Item, Page, StoreError, Unavailable, prefix_end

log = logging.getLogger(__name__)

T = TypeVar("T")
THREADS = 2
PAGE_BYTES = 4 << 20
"""Bytes of values after which a page of a list, or of old changes with the states before them, ends."""
RETRY_SECONDS = 1.0
"""Seconds until a failed read is retried."""
MAX_COUNTS = 64
"""Maximum number of cached counts, one for each paged listing."""

# The newest row of each key not above a revision, from the index alone; max() makes `deleted` that row's. SQLite seeks to one
# lower bound and filters the rows after it one by one: hence the maximum of the prefix and of the start key.
_NEWEST = """
SELECT key, max(revision) AS revision, deleted FROM history INDEXED BY history_by_key
WHERE key >= max(?1, ?2) AND +key > ?2 AND key < ?3 AND revision <= ?4 GROUP BY key HAVING NOT deleted
"""
# The outer loop of a CROSS JOIN is its left side, so rows are in key order, and only the values of returned rows are read.
_ITEMS = f"""
SELECT item.key, item.value, item.revision, item.create_revision
FROM ({_NEWEST} ORDER BY key LIMIT ?5) newest CROSS JOIN history item ON item.revision = newest.revision
"""  # noqa: S608 - constants
_EVENTS = """
SELECT revision, key, create_revision, previous_revision, deleted, value,
    (SELECT length(before.value) FROM history before WHERE before.revision = now.previous_revision)
FROM history now WHERE revision > ? AND revision <= ? AND +key >= ? AND +key < ? ORDER BY revision LIMIT ?
"""


class Reader:
    """A pool of reading threads with a connection each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="store-reader")
        self.trouble: str | None = None
        """Error of the read that failed last; None if reads succeed."""
        self._retry: asyncio.Task[None] | None = None

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query in a read transaction; raises Unavailable if the file cannot be read."""
        try:
            return await self._submit(query)
        except (sqlite3.Error, RuntimeError) as error:
            lost = Unavailable(f"storage cannot be read: {error}")
            if isinstance(error, sqlite3.Error) and self.trouble is None:
                log.error("%s cannot be read: %s (%s)", self._path, error, getattr(error, "sqlite_errorname", ""))
                self.trouble = str(lost)
                self._retry = asyncio.create_task(self._retry_until_read(query), name="store-retry")
            raise lost from error

    async def _submit(self, query: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._run_query, query)

    async def _retry_until_read(self, query: Callable[[sqlite3.Connection], object]) -> None:
        """Retry a failed read until it succeeds."""
        while self.trouble is not None:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                with contextlib.suppress(StoreError):  # the read itself succeeded
                    await self._submit(query)
            except sqlite3.Error:
                continue
            except RuntimeError:
                return  # the reader was closed
            self.trouble = None
            log.warning("%s can be read again", self._path)

    def _run_query(self, query: Callable[[sqlite3.Connection], T]) -> T:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = schema.connect(self._path, read_only=True)
            self._connections.append(connection)
        connection.execute("BEGIN")
        try:
            return query(connection)
        finally:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("COMMIT")

    def cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()

    def close(self) -> None:
        """Wait for running reads and close the connections. Blocks."""
        self._pool.shutdown(cancel_futures=True)
        for connection in self._connections:
            connection.close()


def get(connection: sqlite3.Connection, key: str) -> Item | None:
    row = connection.execute(
        "SELECT key, value, revision, create_revision, deleted FROM history"
        " WHERE key = ? ORDER BY revision DESC LIMIT 1",
        (key,),
    ).fetchone()
    return None if row is None or row[4] else Item(*row[:4])


class RemainingCounts:
    """Cache of the numbers of remaining keys of paged listings, for their next pages.

    Counting reads all remaining keys, so without the cache the pages of a listing cost the square of its length.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int, str], int] = {}

    def after(self, connection: sqlite3.Connection, prefix: str, at: int, start_after: str, items: list[Item]) -> int:
        """Return the number of keys after the last item of the page that follows `start_after`."""
        last = items[-1].key
        with self._lock:
            known = self._known.pop((prefix, at, start_after), None)
        if known is None:
            rest = f"SELECT count(*) FROM ({_NEWEST})"  # noqa: S608
            found: int = connection.execute(rest, (prefix, last, prefix_end(prefix), at)).fetchone()[0]
        else:
            found = known - len(items)
        with self._lock:
            self._known[prefix, at, last] = found
            if len(self._known) > MAX_COUNTS:
                del self._known[next(iter(self._known))]
        return found


def page(
    connection: sqlite3.Connection,
    prefix: str,
    revision: int,
    start_after: str,
    limit: int,
    counts: RemainingCounts | None,
) -> Page:
    """Return a page of a listing (`Store.list`); without `counts` the keys after the page are not counted."""
    newest = schema.newest_revision(connection)
    at = revision or newest
    if at > newest:
        raise FutureRevision(at, newest)
    if at < (compacted := schema.mark(connection, "compacted")):
        raise Compacted(at, compacted)
    rows = connection.execute(_ITEMS, (prefix, start_after, prefix_end(prefix), at, limit + 1 if limit else -1))
    items, size = list[Item](), 0
    for row in rows:
        if limit and (len(items) == limit or size >= PAGE_BYTES):
            rest = counts.after(connection, prefix, at, start_after, items) if counts is not None else 0
            return Page(items, at, more=True, remaining=rest)
        items.append(Item(*row))
        size += len(items[-1].value)
    return Page(items, at)


def events(connection: sqlite3.Connection, prefix: str, after: int, until: int, limit: int) -> tuple[list[Event], int]:
    """Return changes with after < revision <= until, at most `limit`, and up to which revision these are all.

    Raises Compacted.
    """
    if after < (compacted := schema.mark(connection, "compacted")):
        raise Compacted(after, compacted)
    found, size = list[Event](), 0
    for *row, before in connection.execute(_EVENTS, (after, until, prefix, prefix_end(prefix), limit)):
        found.append(event_of(row))
        size += len(found[-1].value) + (before or 0)
        if len(found) == limit or size >= PAGE_BYTES:
            return found, found[-1].revision
    return found, until


def event_of(row: Sequence[Any]) -> Event:
    """Make an event of (revision, key, create_revision, previous_revision, deleted, value)."""
    revision, key, create_revision, previous_revision, deleted, value = row
    kind = "DELETED" if deleted else "MODIFIED" if previous_revision else "ADDED"
    return Event(kind, key, value, revision, create_revision)  # type: ignore[arg-type]


def states_before(connection: sqlite3.Connection, revisions: Sequence[int]) -> dict[int, Item]:
    """Return the state before each of these changes, by the change's revision.

    Raises Compacted if the sweep has deleted one of them since the changes were read: watches with a selector need the
    state before a deletion.
    """
    rows = connection.execute(
        "SELECT n.revision, o.key, o.value, o.revision, o.create_revision FROM history n"
        " JOIN history o ON o.revision = n.previous_revision WHERE n.revision IN (SELECT value FROM json_each(?))",
        (json.dumps(list(revisions)),),
    )
    found = {row[0]: Item(*row[1:]) for row in rows}
    for revision in revisions:
        if revision not in found:
            raise Compacted(revision - 1, schema.mark(connection, "compacted"))
    return found
