"""The SQLite file: its table, its connections, and the checks before it is used.

`history` has a row for every write: an append-only log whose newest row of a key is the key's state. Deletions are rows
too. The index orders the log by key, so that a listing at revision R, the newest row of each key not above R, is read from
the index alone until the rows are known. `marks` has two numbers: reads below `compacted` fail; up to `swept`,
superseded rows are deleted. One process owns a file, which a lock file enforces: revisions are assigned in memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sqlite3
from pathlib import Path

from control.storage import recovery
from control.storage.database_file import DatabaseFile
from control.storage.store import Corrupt, Unavailable

FORMAT = 1
MODE = 0o600

_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master"
_ERROR_CODE = re.compile(r"error code=([0-9]+)")
"""Message of integrity_check if a page could not be read; the low byte is the kind of error."""
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


_STATISTICS = re.compile(r"CREATE TABLE sqlite_stat[14]\([a-z,]+\)")
"""Tables of ANALYZE, which a person may have run."""


def require_own(connection: sqlite3.Connection, path: Path) -> None:
    """Raise Corrupt if a file of others has tables, views, triggers or indexes that this module did not create.

    SQLite would run what they contain at reads and writes, in the cluster's database after a restore, too.
    """
    with contextlib.closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript(_TABLES)
        own = set(empty.execute(_SCHEMA))
    for kind, name, table, sql in connection.execute(_SCHEMA):
        if (kind, name, table, sql) not in own and not (kind == "table" and _STATISTICS.fullmatch(sql or "")):
            raise Corrupt(f"{path} is no snapshot: it has the {kind} {name[:100]!r}, which Wherry does not create")
        own.discard((kind, name, table, sql))
    if own:
        raise Corrupt(f"{path} is no snapshot: it has no {min(own)[1]}")


def lock(path: Path) -> int:
    """Acquire the lock file of a database and return its descriptor; raises Unavailable when another process has it."""
    descriptor = os.open(
        path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, MODE
    )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise Unavailable(f"{path} is in use by another process") from error
    return descriptor


def prepare(path: Path) -> None:
    """Create the database if it does not exist (mode 0600), else checkpoint its log and check its integrity.

    Raises Corrupt, and Unavailable or OSError if the disk cannot be written.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
    try:
        os.fchmod(descriptor, MODE)  # a chmod of the path would follow a link
    finally:
        os.close(descriptor)
    try:
        with contextlib.closing(DatabaseFile(path)) as file, contextlib.closing(connect(path)) as connection:
            recovery.checkpoint_log(connection, file, path)
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


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a connection in autocommit mode whose commits are durable when they return."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=10)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 2000")
        # A burst must not leave a large log file for ever.
        connection.execute("PRAGMA journal_size_limit = 16777216")
        # Some builds of SQLite overwrite each page that a deletion frees with zeros, through the log.
        connection.execute("PRAGMA secure_delete = FAST")
        if read_only:
            connection.execute("PRAGMA query_only = 1")
            # Pages between the root and the rows; each connection keeps its cache for as long as it lives.
            connection.execute("PRAGMA cache_size = -512")
    except BaseException:
        connection.close()
        raise
    return connection


def mark(connection: sqlite3.Connection, name: str) -> int:
    """Return one of the marks, `compacted` or `swept`."""
    row = connection.execute("SELECT revision FROM marks WHERE name = ?", (name,)).fetchone()
    return int(row[0])


def newest_revision(connection: sqlite3.Connection) -> int:
    """Return the newest assigned revision.

    The sweep may have deleted the newest row (a deletion), whose revision is then at most the compaction mark.
    """
    row = connection.execute("SELECT max(revision) FROM history").fetchone()
    return max(row[0] or 0, mark(connection, "compacted"))
