"""Snapshots of the SQLite store: written to a temporary file and renamed; a restore continues with higher revisions.

Clients know revisions newer than a snapshot's. If these were assigned again, a watcher would continue in another history.
So a restore skips REVISION_BUMP revisions and marks all earlier ones as compacted, which makes every watcher list again.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from control.storage import database_folder, schema
from control.storage.store import Corrupt, StoreError, Unavailable

REVISION_BUMP = 1_000_000_000
"""Revisions skipped by a restore, as etcd documents it: more than a cluster writes between two snapshots."""


def write_snapshot(source: Path, path: Path) -> None:
    """Copy the database `source` as of now to `path`, which appears whole, synced and with mode 0600, or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, schema.MODE))
    try:
        # A separate connection in the file's journal mode: a snapshot that is restored must not be changed.
        with contextlib.closing(sqlite3.connect(f"file:{source}?mode=rw", uri=True)) as connection:
            connection.execute("VACUUM INTO ?", (str(partial),))
        database_folder.sync(partial)
        os.replace(partial, path)
        database_folder.sync(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def restore(snapshot: Path, path: Path, private: Path) -> int:
    """Make a snapshot the database at `path` and return its revision; blocks.

    Databases are opened in the folder `private` alone, because another account may own that of `path`
    (control/storage/database_folder.py). Raises Unavailable while a process uses the database, Corrupt when the snapshot is
    damaged. The previous database is kept next to it with the suffix ".replaced".
    """
    lock = schema.lock(path)
    try:
        staged, replaced = private / f"{path.name}.restoring", private / f"{path.name}.replaced"
        _stage(snapshot, staged)
        exists = database_folder.copy_database(path, replaced)
        newest = _newest(replaced) if exists else 0
        schema.prepare(staged)
        with contextlib.closing(schema.connect(staged)) as connection:
            revision = max(schema.newest_revision(connection), newest) + REVISION_BUMP
            connection.execute("UPDATE marks SET revision = ? WHERE name = 'compacted'", (revision,))
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with database_folder.opened(path.parent) as folder:
            if exists:
                _keep(replaced, folder, path.name, complete=newest > 0)
            database_folder.remove(folder, f"{path.name}-wal", f"{path.name}-shm")
            database_folder.move_in(staged, folder, path.name)
        return revision
    finally:
        os.close(lock)


def _stage(snapshot: Path, staged: Path) -> None:
    """Copy a snapshot, if it has the tables of one; raises Unavailable, Corrupt."""
    try:
        write_snapshot(snapshot, staged)
    except sqlite3.OperationalError as error:
        raise Unavailable(f"cannot restore {snapshot}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise Corrupt(f"the snapshot {snapshot} is damaged: {error}") from error
    with contextlib.closing(sqlite3.connect(f"file:{staged}?mode=ro", uri=True)) as connection:
        schema.require_own(connection, snapshot)


def _keep(replaced: Path, folder: int, name: str, *, complete: bool) -> None:
    """Keep the copy of the previous database, and make it the present one if it contains the log.

    Without that, a restore that is killed once the log is removed would have lost what only the log had.
    """
    present = replaced.with_suffix(".present")
    os.link(replaced, present)
    database_folder.move_in(replaced, folder, f"{name}.replaced")
    if complete:
        database_folder.move_in(present, folder, name)


def _newest(path: Path) -> int:
    """Move the log of a private copy into it; return its revision, 0 if it cannot be read."""
    try:
        with contextlib.closing(schema.connect(path)) as connection:
            schema.require_own(connection, path)
            revision = schema.newest_revision(connection)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return revision
    except (sqlite3.Error, StoreError):
        return 0
