"""Memory of writes that the store refuses: conflicts are frequent, and each would keep its batch and its request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from control.storage.sqlite import SqliteStore
from control.storage.store import KeyExists, KeyNotFound, RevisionConflict, StoreError
from tests.support.garbage import garbage

Write = Callable[[SqliteStore], Awaitable[object]]
REFUSED: list[tuple[Write, type[StoreError]]] = [
    (lambda store: store.create("/a", b"2"), KeyExists),
    (lambda store: store.update("/a", b"2", 1_000), RevisionConflict),
    (lambda store: store.update("/missing", b"2", 1), KeyNotFound),
    (lambda store: store.delete("/a", 1_000), RevisionConflict),
    (lambda store: store.delete("/missing"), KeyNotFound),
]


@pytest.mark.parametrize(("write", "kind"), REFUSED)
async def test_a_refused_write_leaves_nothing_for_the_garbage_collector(
    tmp_path: Path, write: Write, kind: type[StoreError]
) -> None:
    store = await SqliteStore.open(tmp_path / "state.db")
    await store.create("/a", b"1")
    with garbage() as left:
        # Others of its batch would be kept with it.
        refused, _ = await asyncio.gather(write(store), store.create("/b", b"1"), return_exceptions=True)
        assert isinstance(refused, kind)
        del refused
        await store.create("/c", b"1")  # the writer's variables are those of its last batch
    assert left & {"frame", "traceback", "Write", "Row", "Decided", "Item", kind.__name__} == set()
    await store.close()
