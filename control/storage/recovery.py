"""Recovery of SQLite's write-ahead log after a disk failure, and the checks before the database is used again.

A failed fsync is reported once, and the kernel then treats the pages that were not written as clean: the log shows a
commit that only memory has. SQLite hides it from readers while the log's index (the -shm file) exists, so the writer
keeps one connection open through all failures. A process that recovers the log without that index accepts the commit;
so does the next process after kill -9 between a write and its fsync. Writing the same pages again does not bring them
to the disk either (see database_file). Hence `checkpoint_log`: it moves the log into the database, verifies that the
disk has it, and truncates the log.
"""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from pathlib import Path

from control.storage.database_file import DatabaseFile
from control.storage.store import NoSpace, StoreError, Unavailable

BUSY_TIMEOUT_MS = 2000
"""Time for which running reads may delay the truncation of the log."""
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
"""The latter: no space for the log's index."""


def checkpoint_log(connection: sqlite3.Connection, file: DatabaseFile, path: Path) -> None:
    """Move the log into the database, verify it on the disk, and truncate the log; raises sqlite3.Error, OSError."""
    log = path.with_name(path.name + "-wal")
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > 0:
            _checkpoint(connection, "FULL")
            file.ensure_written()
    _checkpoint(connection, "TRUNCATE")


def check_writable(connection: sqlite3.Connection) -> None:
    """Commit an update that changes nothing; raises sqlite3.Error if the disk cannot be written."""
    connection.execute("UPDATE marks SET revision = revision WHERE name = 'swept'")


def truncate_log(connection: sqlite3.Connection) -> bool:
    """Move the log into the database and truncate it; return False if long reads prevent it.

    Raises sqlite3.Error.
    """
    return _try_checkpoint(connection, "TRUNCATE")


def _checkpoint(connection: sqlite3.Connection, mode: str) -> None:
    if not _try_checkpoint(connection, mode):
        raise sqlite3.OperationalError("long reads prevent the truncation of the log")


def _try_checkpoint(connection: sqlite3.Connection, mode: str) -> bool:
    (before,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    try:
        busy, _, _ = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {before}")
    return not busy


def is_full(error: BaseException | None) -> bool:
    """Return whether an error, or its cause, means that the disk is full."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) in _FULL
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return error is not None and is_full(error.__cause__)


def commit_error(error: Exception) -> StoreError:
    """Return the error for the requests of a commit that failed.

    SQLITE_FULL is certain to have no effect: the log is written in order, so its commit record is missing.
    """
    full = isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
    return (NoSpace if full else Unavailable)(f"storage cannot commit: {error}")
