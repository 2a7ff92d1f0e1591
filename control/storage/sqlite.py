"""The embedded engine: SQLite in WAL mode with synchronous=FULL behind the `Store` contract.

A writer thread owns all changes (writer), reading threads answer from the file (reader), and watches are fed from the
writer's commits (feed). This module only joins them to the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from control.storage import reader as sql
from control.storage import schema
from control.storage.feed import Feed, Subscription
from control.storage.reader import Reader
from control.storage.requests import Compact, Outcome, Publish, Write
from control.storage.snapshot import write_snapshot
from control.storage.store import Event, Item, Page, Unavailable
from control.storage.writer import Writer

MOST_WAITING = 10_000
"""Writes that wait for the disk; more are refused. A busy server has some hundreds, a disk that hangs makes them grow."""


class SqliteStore:
    """One database file, owned by this process. Open it with `await SqliteStore.open(path)`."""

    def __init__(self, path: Path, lock: int, writer: Writer, reader: Reader, feed: Feed) -> None:
        self._path, self._lock, self._writer, self._reader, self._feed = path, lock, writer, reader, feed
        self._counts = sql.Counts()
        self._closed = False

    def check_disk(self) -> str | None:
        """Return why nothing can be written, or something cannot be read; None while all is well."""
        return self._writer.trouble or self._reader.trouble

    @classmethod
    async def open(cls, path: Path) -> SqliteStore:
        """Open or create the database, checking it first.

        Raises Corrupt, and Unavailable where another process uses it or the disk takes no writes.
        """
        loop = asyncio.get_running_loop()

        def publish(events: Sequence[Event], revision: int, outcomes: Sequence[Outcome]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is gone, and with it all recipients
                loop.call_soon_threadsafe(deliver, events, revision, outcomes)

        def deliver(events: Sequence[Event], revision: int, outcomes: Sequence[Outcome]) -> None:
            # Watchers are woken before writers: what caches learn is there when a writer's answer is used.
            store._feed.publish(events, revision)
            for answer, item, error in outcomes:
                answer(item, error)

        lock, writer = await loop.run_in_executor(None, _prepare, path, publish)
        reader = Reader(path)
        store = cls(path, lock, writer, reader, Feed(reader, writer.revision))
        writer.start()
        return store

    async def get(self, key: str) -> Item | None:
        return await self._reader.read(lambda connection: sql.get(connection, key))

    async def list(self, prefix: str, revision: int = 0, start_after: str = "", limit: int = 0) -> Page:
        return await self._reader.read(
            lambda connection: sql.page(connection, prefix, revision, start_after, limit, self._counts)
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
        if self._writer.waiting >= MOST_WAITING:
            raise Unavailable("the disk has not taken the writes before this one")
        answered: asyncio.Future[Item | None] = self._future()
        # Wall-clock time, because the deadline must hold across a restart.
        expires = time.time() + ttl if ttl else None
        self._writer.put(Write(kind, key, value, expected, expires, partial(_answer, answered)))
        item = await answered
        assert item is not None
        return item

    def watch(self, prefix: str, after_revision: int, previous: bool = False) -> Subscription:
        return Subscription(self._feed, prefix, after_revision, previous)

    async def compact(self, revision: int) -> None:
        answered: asyncio.Future[Item | None] = self._future()
        self._writer.put(Compact(revision, partial(_answer, answered)))
        await answered

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
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._writer.stop)
        await asyncio.sleep(0)  # the writer's last answers are already in the loop's queue
        await self._feed.close()
        self._reader.stop_trying()
        await loop.run_in_executor(None, self._reader.close)
        self._writer.close_file()
        os.close(self._lock)

    def _future(self) -> asyncio.Future[Item | None]:
        if self._closed:
            raise Unavailable("the store is closed")
        return asyncio.get_running_loop().create_future()


def _prepare(path: Path, publish: Publish) -> tuple[int, Writer]:
    """Take the lock of a database, check it and read it; blocks."""
    try:
        lock = schema.own(path)
        try:
            schema.prepare(path)
            return lock, Writer(path, publish)
        except BaseException:
            os.close(lock)
            raise
    except (sqlite3.Error, OSError) as error:
        raise Unavailable(f"{path} cannot be opened: {error}") from error


def _answer(future: asyncio.Future[Item | None], item: Item | None, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(item)
