"""Compaction: deletes superseded rows in small steps between the writer's batches.

`start_compaction` moves the compaction mark in one commit; from then on reads of older revisions fail. `sweep` then deletes, a
number of rows at a time in ascending order of revision, the rows that were superseded at or below the mark, and deletions
at or below it. The order matters: a deletion's row must not be deleted before the rows that it supersedes. Each step
commits with its own mark, so a sweep continues after a crash. A step is a number of rows, not of revisions: after a restore
10^9 revisions have no row.
"""

from __future__ import annotations

import sqlite3

from control.storage.schema import mark, newest_revision
from control.storage.store import Compacted, FutureRevision

STEP = 500
"""Maximum number of rows of a step."""
_STEP_END = "SELECT revision FROM history WHERE revision > ? AND revision <= ? ORDER BY revision LIMIT 1 OFFSET ?"


def start_compaction(connection: sqlite3.Connection, revision: int) -> None:
    """Make `revision` the oldest readable one; raises Compacted or FutureRevision as etcd does."""
    compacted, newest = mark(connection, "compacted"), newest_revision(connection)
    if revision <= compacted:
        raise Compacted(revision, compacted)
    if revision > newest:
        raise FutureRevision(revision, newest)
    connection.execute("UPDATE marks SET revision = ? WHERE name = 'compacted'", (revision,))


def sweep(connection: sqlite3.Connection, step: int = STEP) -> bool:
    """Delete superseded rows among the next `step` rows; return whether rows are left to process."""
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
