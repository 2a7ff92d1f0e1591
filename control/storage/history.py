"""Compaction: forget superseded states, in small steps between the writer's batches.

`begin` moves the compaction mark in one commit; from then on readers below it are refused. `sweep` then removes, a
range of revisions at a time in ascending order, the rows that a row at or below the mark replaced, and deletions at or
below it. Ascending, because a deletion's row must not go before the rows it hides. Each step commits with its own
mark, so a crash resumes where the sweep was.
"""

from __future__ import annotations

import sqlite3

from control.storage.schema import mark, newest_revision
from control.storage.store import Compacted, FutureRevision

STEP = 500


def begin(connection: sqlite3.Connection, revision: int) -> None:
    """Make `revision` the oldest that can be read; raises Compacted or FutureRevision as etcd does."""
    compacted, newest = mark(connection, "compacted"), newest_revision(connection)
    if revision <= compacted:
        raise Compacted(revision, compacted)
    if revision > newest:
        raise FutureRevision(revision, newest)
    connection.execute("UPDATE marks SET revision = ? WHERE name = 'compacted'", (revision,))


def sweep(connection: sqlite3.Connection, step: int = STEP) -> bool:
    """Remove one range of superseded rows; return whether more are to go."""
    swept, compacted = mark(connection, "swept"), mark(connection, "compacted")
    if swept >= compacted:
        return False
    until = min(swept + step, compacted)
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(
            "DELETE FROM history WHERE revision IN"
            " (SELECT previous_revision FROM history WHERE revision > ? AND revision <= ? AND previous_revision > 0)",
            (swept, until),
        )
        connection.execute("DELETE FROM history WHERE revision > ? AND revision <= ? AND deleted", (swept, until))
        connection.execute("UPDATE marks SET revision = ? WHERE name = 'swept'", (until,))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return until < compacted
