"""Recovery of a full disk: the reserve is released, history is compacted, and the reserve is allocated again.

Without a reserve the engine executes only deletions, as etcd does after its alarm NOSPACE: deletions and compaction free
space, other writes need it. The older half of history is compacted first, then half of the rest, until the freed blocks
suffice for the reserve and a log, so watchers that are not far behind notice nothing. If other programs have filled the
disk, all of history is compacted, and after that the free space is checked once a second.
"""

from __future__ import annotations

import errno
import logging
import sqlite3
import time
from pathlib import Path

from control.storage import compaction, free_pages
from control.storage.database_file import PAGE, DatabaseFile
from control.storage.reserve import Reserve
from control.storage.schema import mark
from control.storage.store import NoSpace

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
LOG_PAGES = 2000
"""Pages of the log after which a checkpoint moves it into the database; at most half of the reserve."""
_ROW = 32 << 10
"""Bytes of the log that the deletion of a row needs in the worst case."""


class FullDisk:
    """Steps of the writer while there is no reserve. All methods belong to its thread."""

    def __init__(self, path: Path, file: DatabaseFile, reserve: Reserve) -> None:
        self._path, self._file, self._reserve = path, file, reserve
        self.full = reserve.missing
        """True while only deletions are possible."""
        self._until = 0
        """Revision up to which history may be compacted."""
        self._step = max(1, min(compaction.STEP, reserve.size // _ROW))
        self._unused = True
        """True if there may be unused pages whose blocks have not been returned."""
        self._next = 0.0
        if self.full:
            self._report()

    def limit_log(self, connection: sqlite3.Connection) -> None:
        """Limit the log to a size whose checkpoint fits into the reserve's space."""
        pages = max(min(LOG_PAGES, self._reserve.size // 2 // PAGE), 2)
        connection.execute(f"PRAGMA wal_autocheckpoint = {pages // 2 if self.full else pages}")
        connection.execute(f"PRAGMA journal_size_limit = {self._reserve.size}")

    def release_reserve(self, revision: int) -> bool:
        """Release the reserve after a write has failed on a full disk; return False if there was none."""
        try:
            released = self._reserve.release()
        except OSError as error:
            log.error("the reserve of %s cannot be released: %s", self._path, error)
            return False
        if released:
            self.full, self._until, self._unused, self._next = True, revision, True, 0.0
            self._report()
        return released

    def _report(self) -> None:
        log.error(
            "the disk of %s is full: only deletions are possible until %d MiB are free, and history is compacted",
            self._path,
            -(-self._reserve.needed >> 20),
        )

    def error(self) -> NoSpace:
        """Return the error for writes other than deletions."""
        needed = -(-self._reserve.needed >> 20)
        return NoSpace(
            f"storage cannot commit: database or disk is full; only deletions are possible until {needed} MiB are free"
        )

    def wait(self) -> float:
        """Return the seconds until there is something to do."""
        return max(self._next - time.monotonic(), 0.0)

    def step(self, connection: sqlite3.Connection, revision: int) -> bool:
        """Run one step of the recovery; return True when writes are possible again. Raises sqlite3.Error, OSError."""
        if self.wait() > 0:
            return False
        compacted = mark(connection, "compacted")
        if mark(connection, "swept") < compacted:
            compaction.sweep(connection, self._step)
            self._unused = True
            return False
        if self._unused:
            self._unused = not self._free_unused_pages(connection)
        if self._reserve.allocate():
            self.full = False
            self.limit_log(connection)
            log.warning("the disk of %s has space again", self._path)
            return True
        if compacted < self._until and not self._unused:
            compaction.start_compaction(connection, (compacted + self._until + 1) // 2)
        else:
            self._until = revision
            self._next = time.monotonic() + RETRY_SECONDS
        return False

    def _free_unused_pages(self, connection: sqlite3.Connection) -> bool:
        try:
            return free_pages.free_unused_pages(connection, self._file, self._path)
        except free_pages.FreelistDamaged as error:
            log.error("the unused pages of %s are not returned to the file system: %s", self._path, error)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            log.warning("the file system of %s cannot free a part of a file", self._path)
        return True
