"""Insertion of batches: the rows as they are read again, and the memory that is kept of them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.storage import schema, writer
from control.storage.insertion import Row, insert
from control.storage.requests import Write
from control.storage.reserve import Reserve
from control.storage.writer import Writer
from kube import bounded_cache
from kube.clock import SYSTEM
from kube.serving import allocators


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    schema.prepare(tmp_path / "state.db")
    with closing(schema.connect(tmp_path / "state.db")) as opened:
        yield opened


def test_rows_are_read_as_they_were_inserted(connection: sqlite3.Connection) -> None:
    rows = [
        Row(1, "/a", 1, 0, 0, None, b'{"a":1}'),
        Row(2, '/quo"te/\u00e9', 2, 0, 0, 1_795_000_000.25, b"k8s:\0\xff\xfe"),
        Row(3, "/a", 1, 1, 1, None, b""),
        Row(4, "/a\0b", 4, 0, 0, None, b"not /a's"),
        Row(5, "/\0", 5, 0, 0, None, b""),
        Row(6, "/\U0001f6a2", 6, 0, 0, None, b"{}"),
        Row(2**53 + 1, "/a", 2**53 + 1, 0, 0, 1_795_000_000.0, b"x"),
    ]
    insert(connection, rows)
    assert [Row(*row) for row in connection.execute("SELECT * FROM history ORDER BY revision")] == rows
    types = "SELECT DISTINCT typeof(revision), typeof(key), typeof(deleted), typeof(value) FROM history"
    assert connection.execute(types).fetchall() == [("integer", "text", "integer", "blob")]
    assert {type for (type,) in connection.execute("SELECT typeof(expires) FROM history")} == {"null", "real"}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.floats(0, 2e9), st.binary()),
        max_size=20,
    )
)
def test_any_keys_and_values_are_read_as_they_were_inserted(
    tmp_path_factory: pytest.TempPathFactory, given_rows: list[tuple[str, float | None, bytes]]
) -> None:
    path = tmp_path_factory.mktemp("store") / "state.db"
    schema.prepare(path)
    rows = [Row(n, key, n, 0, 0, expires, value) for n, (key, expires, value) in enumerate(given_rows, 1)]
    with closing(schema.connect(path)) as opened:
        insert(opened, rows)
        assert [Row(*row) for row in opened.execute("SELECT * FROM history ORDER BY revision")] == rows


@pytest.mark.parametrize("values", [[b""], [b"", b""], [b"", b"1", b""]])
def test_empty_values_are_not_null(connection: sqlite3.Connection, values: list[bytes]) -> None:
    insert(connection, [Row(n, "/a", 1, 0, 1, None, value) for n, value in enumerate(values, 1)])
    assert [value for (value,) in connection.execute("SELECT value FROM history ORDER BY revision")] == values


def in_use() -> int:
    """Return the bytes that the C library's allocator has handed out."""
    allocator = allocators.own()
    if not isinstance(allocator, allocators.Glibc):
        pytest.skip("the process does not use glibc's allocator")
    return allocator.used()


def written(writer: Writer, count: int, number: int, size: int) -> None:
    requests = [Write("create", f"/{number}/{n}", bytes(size), 0, None, ignore) for n in range(count)]
    writer._process(requests)


def ignore(*result: object) -> None:
    pass


def test_batches_of_all_sizes_leave_none_of_their_values_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    schema.prepare(path)
    with closing(Reserve(path)) as reserve:
        made = Writer(path, ignore, reserve, SYSTEM)
        try:
            written(made, 4, 0, 200_000)
            before = in_use()
            for count in range(1, 21):
                written(made, count, count, 200_000)
            written(made, 1, 21, 1)
            assert in_use() - before < 8 << 20, "of 42 MB written"
        finally:
            made._close()
            made._release()
            made.close_file()


def test_pages_that_sqlite_caches_are_freed_after_a_load(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    schema.prepare(path)
    with closing(Reserve(path)) as reserve:
        made = Writer(path, ignore, reserve, SYSTEM)
        try:
            for number in range(20):
                written(made, 100, number, 2_000)
            made.start()
            before = in_use()
            bounded_cache.forget_all()
            deadline = time.monotonic() + 20
            while before - in_use() < 1 << 20:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            made.stop()
            made.close_file()


def test_a_batch_after_a_failure_is_committed_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "BATCH_BYTES", 1000)
    parts = list(writer._parts([Write("create", f"/{n}", bytes(400), 0, None, ignore) for n in range(8)]))
    assert [len(part) for part in parts] == [3, 3, 2]
    assert [len(part) for part in writer._parts([])] == [0]
