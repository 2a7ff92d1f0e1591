"""Cost of listings in SQLite, in steps of its virtual machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from sqlite3 import Connection

import pytest

from control.storage import reader, schema
from control.storage.store import Page

OBJECTS = 400
FOLDER = "/registry/configmaps/"


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    path = tmp_path / "state.db"
    schema.prepare(path)
    with closing(schema.connect(path)) as made:
        rows = [(n + 1, f"{FOLDER}default/c{n:03}", n + 1, 0, 0, None, b"{}") for n in range(OBJECTS)]
        made.executemany("INSERT INTO history VALUES (?,?,?,?,?,?,?)", rows)
        yield made


def pages(connection: Connection, limit: int) -> Iterator[Page]:
    counts, after = reader.RemainingCounts(), ""
    while True:
        page = reader.page(connection, FOLDER, OBJECTS, after, limit, counts)
        yield page
        if not page.more:
            return
        after = page.items[-1].key


def test_the_pages_of_a_list_take_few_more_steps_than_the_list_as_a_whole(connection: Connection) -> None:
    steps = [0]

    def step() -> None:
        steps[0] += 1

    connection.set_progress_handler(step, 1)
    (whole,) = pages(connection, 0)
    at_once, steps[0] = steps[0], 0
    found = 0
    for page in pages(connection, 20):
        found += len(page.items)
        assert page.remaining == OBJECTS - found
    assert found == len(whole.items) == OBJECTS
    assert steps[0] < 2.5 * at_once


def test_the_counts_of_many_listings_under_way_are_bounded(connection: Connection) -> None:
    counts = reader.RemainingCounts()
    for revision in range(2, OBJECTS):
        assert reader.page(connection, FOLDER, revision, "", 1, counts).remaining == revision - 1
    assert len(counts._known) == reader.MAX_COUNTS


def test_a_list_requested_twice_has_the_same_cost(connection: Connection) -> None:
    counts = reader.RemainingCounts()
    (first, *_), after = pages(connection, 10), ""
    for _ in range(2):
        page = reader.page(connection, FOLDER, OBJECTS, after, 10, counts)
        assert (page.items, page.remaining) == (first.items, OBJECTS - 10)
        again = reader.page(connection, FOLDER, OBJECTS, page.items[-1].key, 10, counts)
        assert again.remaining == OBJECTS - 20
