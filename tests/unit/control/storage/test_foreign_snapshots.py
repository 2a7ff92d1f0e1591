"""Snapshot files of others: SQLite executes nothing from them, and a statement about one ends."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from control.storage import archive, schema, snapshot
from control.storage.store import Corrupt, StoreError, Unavailable

TRIGGER = (
    "CREATE TRIGGER back AFTER INSERT ON history BEGIN "
    "INSERT OR REPLACE INTO history VALUES (NEW.revision + 1000, '/registry/evil', 1, 0, 0, NULL, x'7b7d'); END"
)
ENDLESS = (
    "ALTER TABLE history RENAME TO h2; "
    "CREATE VIEW history AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT i AS revision, 'k' AS key, 0 AS deleted FROM n"
)
CHECK = (
    "PRAGMA writable_schema = ON; "
    "UPDATE sqlite_master SET sql = replace(sql, 'value BLOB NOT NULL', 'value BLOB NOT NULL CHECK (length(value) < 9)') "
    "WHERE name = 'history'; PRAGMA writable_schema = RESET"
)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A snapshot of one key."""
    path = tmp_path / "made.db"
    schema.prepare(path)
    with contextlib.closing(schema.connect(path)) as connection:
        connection.execute("INSERT INTO history VALUES (5, '/registry/a', 5, 0, 0, NULL, x'7b7d')")
        connection.execute("PRAGMA journal_mode = DELETE")
    return path


def change(path: Path, script: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
        connection.commit()


@pytest.mark.parametrize(
    ("script", "name"),
    [
        (TRIGGER, "trigger 'back'"),
        (ENDLESS, "'h"),
        ("CREATE VIEW other AS SELECT * FROM history", "view 'other'"),
        ("CREATE TABLE other (a)", "table 'other'"),
        ("CREATE INDEX other ON history (value)", "index 'other'"),
        ("DROP INDEX history_by_key", "no history_by_key"),
        (CHECK, "table 'history'"),
    ],
)
def test_a_file_with_another_schema_is_no_snapshot(script: str, name: str, made: Path, tmp_path: Path) -> None:
    """A trigger would have been in the cluster's database, and in all later snapshots."""
    change(made, script)
    readers: list[Callable[[], object]] = [
        lambda: archive.summary(made),
        lambda: archive.read(made),
        lambda: snapshot.restore(made, tmp_path / "state.db", tmp_path),
    ]
    for read in readers:
        with pytest.raises(Corrupt, match=f"made.db is no snapshot: it has .*{name}"):
            read()
    assert not (tmp_path / "state.db").exists()


def test_statistics_of_a_person_are_part_of_a_snapshot(made: Path, tmp_path: Path) -> None:
    change(made, "ANALYZE")
    assert archive.summary(made).keys == 1
    assert snapshot.restore(made, tmp_path / "state.db", tmp_path) > 5


def test_a_statement_about_a_file_ends(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "require_own", lambda connection, path: None)
    monkeypatch.setattr(archive, "FREE_STEPS", 1_000_000)
    change(made, ENDLESS)
    with pytest.raises(Unavailable, match="interrupted"):
        archive.summary(made)


def test_large_snapshots_are_far_from_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.db"
    schema.prepare(path)
    with contextlib.closing(schema.connect(path)) as connection:
        rows = ((at, f"/registry/{at % 2000}", at, 0, at % 7 == 0, None, b"") for at in range(20_000))
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO history VALUES (?,?,?,?,?,?,?)", rows)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = DELETE")
    monkeypatch.setattr(archive, "FREE_STEPS", 0)
    monkeypatch.setattr(archive, "STEPS_PER_BYTE", 3)
    try:
        assert archive.summary(path).keys == len(archive.read(path)[1])
    except StoreError as error:
        pytest.fail(str(error))
