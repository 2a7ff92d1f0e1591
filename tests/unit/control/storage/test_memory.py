"""The store in memory: compactions in a row, and requests of a watch's progress."""

from __future__ import annotations

import asyncio

import pytest

from control.storage.memory import MemoryStore
from control.storage.store import Compacted

A, B = "/registry/pods/a", "/registry/pods/b"


async def values(store: MemoryStore, revision: int = 0) -> dict[str, bytes]:
    return {item.key: item.value for item in (await store.list("/registry/pods/", revision)).items}


async def test_keys_that_are_not_written_between_two_compactions_keep_their_states() -> None:
    store = MemoryStore()
    seldom = await store.create(A, b"1")
    often = await store.create(B, b"1")
    await store.compact(often.revision)
    often = await store.update(B, b"2", often.revision)
    seldom = await store.update(A, b"2", seldom.revision)
    await store.compact(often.revision)
    assert await values(store, often.revision) == {A: b"1", B: b"2"}
    assert await values(store) == {A: b"2", B: b"2"}
    await store.compact(seldom.revision)
    assert await values(store) == await values(store, seldom.revision) == {A: b"2", B: b"2"}
    with pytest.raises(Compacted):
        await store.list("/registry/pods/", often.revision)


async def test_a_key_is_forgotten_by_the_compaction_of_its_deletion() -> None:
    store = MemoryStore()
    created = await store.create(A, b"1")
    await store.compact(created.revision)
    gone = await store.delete(A)
    await store.create(B, b"1")
    assert await values(store, created.revision) == {A: b"1"}
    await store.compact(gone.revision)
    assert await values(store) == {B: b"1"}
    assert list(store._newest) == store._keys == [B]
    assert (await store.create(A, b"2")).revision == gone.revision + 2


async def test_changes_up_to_the_current_revision_answer_a_request_of_progress() -> None:
    store = MemoryStore()
    watch = store.watch("/registry/pods/", 0)
    item = await store.create(A, b"1")
    watch.request_progress()
    batch = await anext(watch)
    assert ([event.key for event in batch.events], batch.revision) == ([A], item.revision)
    following = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0.01)
    assert not following.done()
    watch.request_progress()
    assert await asyncio.wait_for(following, 5) == type(batch)((), item.revision)
    await watch.aclose()


async def test_a_request_of_progress_is_answered_after_all_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("control.storage.memory.CHUNK", 1)
    monkeypatch.setattr("control.storage.memory_watch.CHUNK", 1)
    store = MemoryStore()
    watch = store.watch("/registry/pods/", 0)
    await store.create(A, b"1")
    await store.create(B, b"1")
    other = await store.create("/registry/secrets/c", b"1")
    watch.request_progress()
    batches = [await asyncio.wait_for(anext(watch), 5) for _ in range(3)]
    assert [[event.key for event in batch.events] for batch in batches] == [[A], [B], []]
    assert batches[-1].revision == other.revision
    await watch.aclose()
