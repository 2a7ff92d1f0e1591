"""The SQLite file: its one table, how it is opened, and what is checked before it is trusted.

`history` holds a row for every write: an append-only log whose newest row of a key is its state. Deletions are rows
too. The index orders the log by key, so that "the newest row not above revision R" (a listing at a revision) reads the
index alone until it knows which rows it wants. `marks` holds two numbers: below `compacted` no reader may go; up to
`swept` superseded rows are really gone. A file has one owning process, held by a lock file: revisions are handed out
in memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sqlite3
from pathlib import Path

from control.storage import recovery
from control.storage.on_disk import OnDisk
from control.storage.store import Corrupt, Unavailable

FORMAT = 1
MODE = 0o600

_ERROR_CODE = re.compile(r"error code=(\d+)")
"""What integrity_check says where a page could not be read; the low byte is the kind of error."""
_TABLES = """
CREATE TABLE history (
    revision INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    create_revision INTEGER NOT NULL,
    previous_revision INTEGER NOT NULL,
    deleted INTEGER NOT NULL,
    expires REAL,
    value BLOB NOT NULL
);
CREATE INDEX history_by_key ON history (key, revision, deleted);
CREATE TABLE marks (name TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO marks VALUES ('compacted', 0), ('swept', 0);
"""


def own(path: Path) -> int:
    """Take the lock beside a database and return its descriptor; raises Unavailable when another process has it."""
    descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise Unavailable(f"{path} is in use by another process") from error
    return descriptor


def prepare(path: Path) -> None:
    """Create the database if it is new (mode 0600), else settle its log and check it wholly.

    Raises Corrupt, and Unavailable or OSError where the disk takes no writes.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE))
    os.chmod(path, MODE)
    try:
        with contextlib.closing(OnDisk(path)) as file, contextlib.closing(connect(path)) as connection:
            recovery.settle(connection, file, path)
            _create_or_check(connection, path)
    except sqlite3.OperationalError as error:
        raise Unavailable(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise Corrupt(f"{path} is damaged ({error}); restore a snapshot") from error


def _create_or_check(connection: sqlite3.Connection, path: Path) -> None:
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not found and not tables:
        connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {FORMAT}; COMMIT;")
        return
    problems = [row[0] for row in connection.execute("PRAGMA integrity_check(10)")]
    if any(int(code) & 0xFF == sqlite3.SQLITE_IOERR for code in _ERROR_CODE.findall(" ".join(problems))):
        raise Unavailable(f"{path} cannot be read: the disk fails ({'; '.join(problems)})")
    if problems != ["ok"]:
        raise Corrupt(f"{path} is damaged ({'; '.join(problems)}); restore a snapshot")
    if found != FORMAT:
        raise Corrupt(f"{path} has storage format {found}; this version reads format {FORMAT}")


def connect(path: Path, read_only: bool = False) -> sqlite3.Connection:
    """Open a connection in autocommit mode whose commits are on the disk when they return."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=10)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 2000")
        # A megabyte of log left after a checkpoint is enough; a burst must not keep its file for ever.
        connection.execute("PRAGMA journal_size_limit = 16777216")
        if read_only:
            connection.execute("PRAGMA query_only = 1")
    except BaseException:
        connection.close()
        raise
    return connection


def mark(connection: sqlite3.Connection, name: str) -> int:
    """Return one of the marks, `compacted` or `swept`."""
    row = connection.execute("SELECT revision FROM marks WHERE name = ?", (name,)).fetchone()
    return int(row[0])


def newest_revision(connection: sqlite3.Connection) -> int:
    """Return the revision after which the next one follows.

    The sweep may have removed the newest row, a deletion; it is then not above the compaction mark.
    """
    row = connection.execute("SELECT max(revision) FROM history").fetchone()
    return max(row[0] or 0, mark(connection, "compacted"))
