"""Recovery of SQLite's log after a disk failure, and the checks before the database is used again.

A failed fsync is reported once, and the pages that were not written count as clean from then on: the log then shows a
commit that only memory has. SQLite keeps it from readers as long as the log's index lives, which is why the writer
keeps one connection open through all failures; who recovers the log without that index believes whatever it holds. So
does the next process after kill -9 between a write and its fsync. Nor may the log be written on at the same place, for
writing such pages again does not bring them onto the disk (see on_disk). Hence `settle`: what the log holds goes into the
database, the disk is asked whether it has it, and the log begins anew from nothing.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from control.storage.on_disk import OnDisk
from control.storage.store import NoSpace, StoreError, Unavailable

PATIENCE_MS = 2000
"""Time that reads that are under way may keep the log from being emptied."""


def settle(connection: sqlite3.Connection, file: OnDisk, path: Path) -> None:
    """Move the log into the database, durably, and empty it; raises sqlite3.Error, OSError."""
    log = path.with_name(path.name + "-wal")
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > 0:
            _checkpoint(connection, "FULL")
            file.ensure()
    _checkpoint(connection, "TRUNCATE")


def prove(connection: sqlite3.Connection) -> None:
    """Commit an update that changes nothing; raises sqlite3.Error while the disk cannot be written."""
    connection.execute("UPDATE marks SET revision = revision WHERE name = 'swept'")


def _checkpoint(connection: sqlite3.Connection, how: str) -> None:
    (before,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {PATIENCE_MS}")
    try:
        busy, _, _ = connection.execute(f"PRAGMA wal_checkpoint({how})").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {before}")
    if busy:
        raise sqlite3.OperationalError("reads that take long keep the log from being emptied")


def failure(error: Exception) -> StoreError:
    """Return the error for the requests of a commit that failed.

    A full disk fails a write of the log before the page that would make it a commit is whole.
    """
    full = isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
    return (NoSpace if full else Unavailable)(f"storage cannot commit: {error}")
