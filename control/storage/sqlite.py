"""The embedded engine: SQLite in WAL mode with synchronous=FULL behind the `Store` contract.

A writer thread makes all changes (writer), reader threads read the file (reader), and watches receive the writer's
commits (feed). This module connects them to the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from control.storage import reader as sql
from control.storage import recovery, schema
from control.storage.feed import Feed, Subscription
from control.storage.reader import Reader
from control.storage.requests import Compact, Expire, Outcome, Publish, Write
from control.storage.reserve import Reserve
from control.storage.snapshot import write_snapshot
from control.storage.store import Event, Item, Page, StoreError, Unavailable
from control.storage.writer import RETRY_SECONDS, Writer
from kube.clock import SYSTEM, Clock

MAX_QUEUED_WRITES = 10_000
"""Maximum number of writes in the queue. A busy server has some hundreds; the queue grows while the disk hangs."""


class SqliteStore:
    """One database file, owned by this process. Open it with `await SqliteStore.open(path)`."""

    def __init__(
        self, path: Path, lock: int, reserve: Reserve, writer: Writer, reader: Reader, feed: Feed, clock: Clock
    ) -> None:
        self._path, self._lock, self._reserve = path, lock, reserve
        self._writer, self._reader, self._feed = writer, reader, feed
        self._counts = sql.RemainingCounts()
        self._closed = False
        self._clock = clock
        self._expiring: asyncio.Task[None] | None = None
        self._expiry: tuple[float, asyncio.Future[None]] | None = None
        """Time (of the boot clock) at which keys expire next, and the timer for it."""
        self._unanswered = 0
        """Requests that the writer has not answered."""

    def busy(self) -> bool:
        """Return whether the writer has requests that it has not answered."""
        return self._unanswered > 0

    def check_disk(self) -> str | None:
        """Return why nothing can be written, or something cannot be read; None if the disk works."""
        return self._writer.trouble or self._reader.trouble

    @classmethod
    async def open(cls, path: Path, clock: Clock = SYSTEM) -> SqliteStore:
        """Open or create the database, checking it first. `clock` decides when keys expire.

        Raises Corrupt, and Unavailable if another process uses it or the disk cannot be written.
        """
        loop = asyncio.get_running_loop()
        reader = Reader(path)
        feed = Feed(reader, 0)

        def deliver(events: Sequence[Event], revision: int, outcomes: Sequence[Outcome]) -> None:
            # Watchers are woken before writers: caches have the change when a writer uses its result.
            feed.publish(events, revision)
            for answer, item, error in outcomes:
                answer(item, error)

        def publish(events: Sequence[Event], revision: int, outcomes: Sequence[Outcome]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is gone, and with it all recipients
                loop.call_soon_threadsafe(deliver, events, revision, outcomes)

        lock, reserve, writer = await loop.run_in_executor(None, _prepare, path, publish, clock)
        feed.publish((), writer.revision)
        store = cls(path, lock, reserve, writer, reader, feed, clock)
        writer.start()
        store._expiring = asyncio.create_task(store._expire(), name="store-expiry")
        return store

    async def get(self, key: str) -> Item | None:
        return await self._reader.read(lambda connection: sql.get(connection, key))

    async def list(
        self, prefix: str, revision: int = 0, start_after: str = "", limit: int = 0, *, counted: bool = True
    ) -> Page:
        return await self._reader.read(
            lambda connection: sql.page(
                connection, prefix, revision, start_after, limit, self._counts if counted else None
            )
        )

    async def create(self, key: str, value: bytes, ttl: int = 0) -> Item:
        return await self._write("create", key, value, 0, ttl)

    async def update(self, key: str, value: bytes, expected_revision: int, ttl: int = 0) -> Item:
        return await self._write("update", key, value, expected_revision, ttl)

    async def delete(self, key: str, expected_revision: int = 0) -> Item:
        return await self._write("delete", key, b"", expected_revision, 0)

    async def _write(
        self, kind: Literal["create", "update", "delete"], key: str, value: bytes, expected: int, ttl: int
    ) -> Item:
        if self._writer.waiting >= MAX_QUEUED_WRITES:
            raise Unavailable("too many writes wait for the disk")
        answered: asyncio.Future[Item | None] = self._future()
        # Wall-clock time, because the deadline must hold across a restart.
        expires = self._clock.now().timestamp() + ttl if ttl else None
        self._writer.put(Write(kind, key, value, expected, expires, partial(_answer, answered)))
        try:
            item = await answered
        finally:
            del answered  # which has the error, whose traceback has this frame
        assert item is not None
        if ttl and self._expiry is not None and self._clock.boottime() + ttl < self._expiry[0]:
            self._expiry[1].cancel()
        return item

    async def _expire(self) -> None:
        """Have expired keys deleted, until cancelled."""
        while True:
            seconds = self._writer.until_next_expiry()
            if seconds > 0:
                timer = asyncio.ensure_future(self._clock.sleep(seconds))
                self._expiry = self._clock.boottime() + seconds, timer
                try:
                    await asyncio.wait((timer,))
                finally:
                    timer.cancel()
                    self._expiry = None
                continue
            answered = self._future()
            self._writer.put(Expire(partial(_answer, answered)))
            try:
                await answered
            except StoreError:
                await self._clock.sleep(RETRY_SECONDS)

    def watch(self, prefix: str, after_revision: int, *, previous: bool = False) -> Subscription:
        return Subscription(self._feed, prefix, after_revision, previous=previous)

    async def compact(self, revision: int) -> None:
        answered: asyncio.Future[Item | None] = self._future()
        self._writer.put(Compact(revision, partial(_answer, answered)))
        try:
            await answered
        finally:
            del answered

    async def compacted_revision(self) -> int:
        return await self._reader.read(lambda connection: schema.mark(connection, "compacted"))

    async def snapshot(self, path: Path) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(None, write_snapshot, self._path, path)
        except (sqlite3.Error, OSError) as error:
            raise Unavailable(f"cannot write the snapshot {path}: {error}") from error

    async def current_revision(self) -> int:
        return self._feed.revision

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._expiring is not None:
            self._expiring.cancel()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._writer.stop)
        await asyncio.sleep(0)  # the writer's last results are already in the loop's queue
        await self._feed.close()
        self._reader.cancel_retry()
        await loop.run_in_executor(None, self._reader.close)
        self._writer.close_file()
        self._reserve.close()
        os.close(self._lock)

    def _future(self) -> asyncio.Future[Item | None]:
        if self._closed:
            raise Unavailable("the store is closed")
        future = asyncio.get_running_loop().create_future()
        self._unanswered += 1
        future.add_done_callback(self._answered)
        return future

    def _answered(self, future: asyncio.Future[Item | None]) -> None:
        self._unanswered -= 1


def _prepare(path: Path, publish: Publish, clock: Clock) -> tuple[int, Reserve, Writer]:
    """Lock a database, check it and read it; blocks."""
    with contextlib.ExitStack() as stack:
        try:
            lock = schema.lock(path)
            stack.callback(os.close, lock)
            reserve = Reserve(path)
            stack.callback(reserve.close)
            try:
                schema.prepare(path)
            except (Unavailable, sqlite3.Error, OSError) as error:
                # The log may have to be moved into the database before anything else, and that needs space.
                if not (recovery.is_full(error) and reserve.release()):
                    raise
                schema.prepare(path)
            writer = Writer(path, publish, reserve, clock)
        except (sqlite3.Error, OSError) as error:
            raise Unavailable(f"{path} cannot be opened: {error}") from error
        stack.pop_all()
        return lock, reserve, writer


def _answer(future: asyncio.Future[Item | None], item: Item | None, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(item)
