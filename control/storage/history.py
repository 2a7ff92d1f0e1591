"""Compaction: forget superseded states, in small steps between the writer's batches.

`begin` moves the compaction mark in one commit; from then on readers below it are refused. `sweep` then removes, a
number of rows at a time in ascending order of revision, the rows that a row at or below the mark replaced, and deletions at
or below it. Ascending, because a deletion's row must not go before the rows it hides. Each step commits with its own
mark, so a crash resumes where the sweep was. Rows are counted, not revisions: after a restore a thousand million
revisions have no row.
"""

from __future__ import annotations

import sqlite3

from control.storage.schema import mark, newest_revision
from control.storage.store import Compacted, FutureRevision

STEP = 500
"""Rows that a step looks at, at most."""
_STEP_END = "SELECT revision FROM history WHERE revision > ? AND revision <= ? ORDER BY revision LIMIT 1 OFFSET ?"


def begin(connection: sqlite3.Connection, revision: int) -> None:
    """Make `revision` the oldest that can be read; raises Compacted or FutureRevision as etcd does."""
    compacted, newest = mark(connection, "compacted"), newest_revision(connection)
    if revision <= compacted:
        raise Compacted(revision, compacted)
    if revision > newest:
        raise FutureRevision(revision, newest)
    connection.execute("UPDATE marks SET revision = ? WHERE name = 'compacted'", (revision,))


def sweep(connection: sqlite3.Connection, step: int = STEP) -> bool:
    """Remove what is superseded among the next `step` rows; return whether more rows are to be looked at."""
    swept, compacted = mark(connection, "swept"), mark(connection, "compacted")
    if swept >= compacted:
        return False
    last = connection.execute(_STEP_END, (swept, compacted, step - 1)).fetchone()
    until = last[0] if last else compacted
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
