"""Insertion of a batch of rows into `history` by one statement, whatever their number.

sqlite3 caches prepared statements, and a statement keeps its parameters until its next execution. With a statement for each
number of rows, as VALUES lists need, the cache would keep a hundred batches of values in memory. So all rows are two
parameters: the numbers as JSON, and the keys and values one after the other, from which each row takes its parts (SQLite cuts
a string of JSON at a NUL, which the names of some kinds may contain). One execution of one statement also means one
transaction, and one acquisition of the interpreter's lock. A single row, as on a server with few writes, is passed as it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

_INSERT = """
INSERT INTO history (revision, key, create_revision, previous_revision, deleted, expires, value)
SELECT r.value ->> 0, CAST(substr(?2, r.value ->> 1, r.value ->> 2) AS TEXT),
    r.value ->> 3, r.value ->> 4, r.value ->> 5, r.value ->> 6,
    substr(?2, (r.value ->> 1) + (r.value ->> 2), r.value ->> 7)
FROM json_each(?1) r
"""
_INSERT_ONE = """
INSERT INTO history (revision, key, create_revision, previous_revision, deleted, expires, value) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_encoder = msgspec.json.Encoder()


class Row(NamedTuple):
    """A row of `history` (schema.py)."""

    revision: int
    key: str
    create_revision: int
    previous_revision: int
    deleted: int
    expires: float | None
    value: bytes


def insert(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Insert rows in ascending order of revision, in one transaction unless one is open."""
    if len(rows) == 1:
        connection.execute(_INSERT_ONE, rows[0])
        return
    numbers, texts, start = [], [b"-"], 2  # substr() of an empty blob is NULL
    for revision, name, *rest, value in rows:
        key = name.encode()
        numbers.append((revision, start, len(key), *rest, len(value)))
        texts += (key, value)
        start += len(key) + len(value)
    connection.execute(_INSERT, (_encoder.encode(numbers).decode(), b"".join(texts)))
