"""Snapshot files of both engines: a database of the SQLite engine with one row a key.

A snapshot of etcd can be restored into SQLite and vice versa, and any SQLite tool can read one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from control.storage import schema
from control.storage.database_folder import sync
from control.storage.store import Corrupt, Item, Unavailable

PAGE = 1000
STEPS = 100_000
"""Instructions of SQLite's virtual machine between two calls of the handler that counts them."""
STEPS_PER_BYTE, FREE_STEPS = 10, 100_000_000
"""Instructions of what is read from a file, for each byte of it and in any case; a row takes some tens."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Content of a snapshot."""

    path: Path
    revision: int
    keys: int
    size: int
    """Bytes."""
    taken: float
    """Time of the snapshot in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a snapshot; `ttl` is the remaining time to live in seconds, 0 without expiry."""

    key: str
    value: bytes
    ttl: int


def write(path: Path, items: Sequence[Item], revision: int, lifetimes: Mapping[str, int]) -> None:
    """Write the keys of a revision to a new file of mode 0600, atomically; blocks."""
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    try:
        schema.prepare(partial)
        with contextlib.closing(schema.connect(partial)) as connection:
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO history VALUES (?,?,?,0,0,?,?)", _rows(items, revision, lifetimes))
            newest = max(revision, schema.newest_revision(connection))
            connection.execute("UPDATE marks SET revision = ?", (newest,))
            connection.execute("COMMIT")
            # One file, without a log.
            connection.execute("PRAGMA journal_mode = DELETE")
        sync(partial)
        os.replace(partial, path)
        sync(path.parent)
    except BaseException:
        for suffix in ("", "-wal", "-shm"):
            partial.with_name(partial.name + suffix).unlink(missing_ok=True)
        raise


def _rows(
    items: Sequence[Item], revision: int, lifetimes: Mapping[str, int]
) -> Iterator[tuple[int, str, int, float | None, bytes]]:
    taken: set[int] = set()
    for item in items:
        at = item.revision
        if at in taken:  # upstream may write several keys in one transaction; SQLite has one key a revision
            revision = at = revision + 1
        taken.add(at)
        left = lifetimes.get(item.key)
        yield at, item.key, item.create_revision, None if left is None else time.time() + left, item.value


def summary(path: Path) -> Summary:
    """Return a summary of a snapshot; raises Corrupt if the file is not a snapshot. Blocks."""
    with _opened(path) as connection:
        (keys,) = connection.execute(f"SELECT count(*) FROM ({_NEWEST})").fetchone()  # noqa: S608 - constants
        revision = schema.newest_revision(connection)
    facts = path.stat()
    return Summary(path, revision, keys, facts.st_size, facts.st_mtime)


def read(path: Path) -> tuple[int, list[Entry]]:
    """Return a snapshot's revision and keys, without expired ones; raises Corrupt. Blocks."""
    with _opened(path) as connection:
        if (found := connection.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
            raise Corrupt(f"the snapshot {path} is damaged: {found}")
        now, entries = time.time(), []
        for key, value, expires in connection.execute(
            f"SELECT h.key, h.value, h.expires FROM history h JOIN ({_NEWEST}) n ON h.revision = n.revision"  # noqa: S608
            " ORDER BY h.key"
        ):
            if expires is None or expires > now:
                entries.append(Entry(key, value, 0 if expires is None else max(1, int(expires - now))))
        return schema.newest_revision(connection), entries


_NEWEST = "SELECT key, max(revision) AS revision, deleted FROM history GROUP BY key HAVING NOT deleted"


def _limit(most: int) -> Callable[[], int]:
    """Return a progress handler that ends what a connection does after so many instructions."""
    calls = itertools.count(1)
    return lambda: int(next(calls) * STEPS > most)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        raise Unavailable(f"there is no snapshot {path}")
    try:
        # A snapshot is one file: what is beside it (a journal) may be of an account that may write its folder.
        place = quote(os.fspath(path.absolute()))
        with contextlib.closing(sqlite3.connect(f"file:{place}?mode=ro&immutable=1", uri=True)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.set_progress_handler(_limit(FREE_STEPS + STEPS_PER_BYTE * path.stat().st_size), STEPS)
            if connection.execute("PRAGMA user_version").fetchone()[0] != schema.FORMAT:
                raise Corrupt(f"{path} is not a snapshot of this version")
            schema.require_own(connection, path)
            yield connection
    except sqlite3.OperationalError as error:
        raise Unavailable(f"cannot read {path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise Corrupt(f"{path} is no snapshot, or a damaged one: {error}") from error
