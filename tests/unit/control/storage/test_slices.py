"""Many large objects are gone through in slices, and the slices of several requests do not add up in a round of the loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from control.event_loop import pacing
from control.storage import feed, reader, resource_cache
from control.storage.entry import Entry, Predicate
from control.storage.listing import encode_token, list_objects
from control.storage.selector import Selector
from control.storage.store import Batch
from tests.unit.control.storage.conftest import PODS, Bench, pod

OBJECTS, SIZE = 12, 80_000
REQUESTS = 5
Read = Callable[[Bench, int, Predicate], Awaitable[Any]]


async def fill(bench: Bench) -> int:
    """Make large objects, each changed once, and a small one; return the revision before the small one."""
    for number in range(OBJECTS):
        await bench.create(large(number))
    for number in range(OBJECTS):
        await bench.update(large(number) | {"status": {"phase": "Running"}})
    before = bench.cache.revision
    await bench.create(pod("small"))
    return before


def large(number: int) -> dict[str, Any]:
    made = pod(f"p{number:02}", labels={"app": "db"})
    return made | {"spec": {"nodeName": "", "text": "x" * SIZE}}


async def listed(bench: Bench, revision: int, predicate: Predicate) -> None:
    assert not (await list_objects(bench.cache, bench.pods, PODS, predicate)).entries


async def listed_exactly(bench: Bench, revision: int, predicate: Predicate) -> None:
    found = await list_objects(
        bench.cache, bench.pods, PODS, predicate, resource_version=str(revision), match="Exact", limit=1
    )
    assert not found.entries


async def continued(bench: Bench, revision: int, predicate: Predicate) -> None:
    token = encode_token(revision, "default/a")
    assert not (await list_objects(bench.cache, bench.pods, PODS, predicate, limit=1, continue_token=token)).entries


async def watched(bench: Bench, revision: int, predicate: Predicate, **options: Any) -> None:
    options = {"initial_end": True, "bookmarks": True} | options
    async with aclosing(
        bench.pods.watch(revision, PODS, Selector(lambda e: predicate(e) or e.key.endswith("/small")), **options)
    ) as w:
        assert [watch_event.entry.key for watch_event in await anext(w)][-1] in (f"{PODS}default/small", "")


async def watched_initially(bench: Bench, revision: int, predicate: Predicate) -> None:
    await watched(bench, 0, predicate, initial=True)


async def watched_recently(bench: Bench, revision: int, predicate: Predicate) -> None:
    await watched(bench, revision - OBJECTS, predicate)


async def replayed(bench: Bench, revision: int, predicate: Predicate) -> None:
    bench.pods.recent._changes.clear()
    bench.pods.recent.floor = bench.cache.revision
    await watched(bench, revision - OBJECTS, predicate)


@pytest.mark.parametrize("read", [listed, listed_exactly, continued, watched_initially, watched_recently, replayed])
async def test_requests_over_large_objects_share_the_slices_of_the_loop(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, read: Read
) -> None:
    revision = await fill(bench)
    monkeypatch.setattr(pacing.time, "perf_counter", lambda: 0.0)
    rounds, gone_through = [0], Counter[int]()

    def predicate(entry: Entry) -> bool:
        gone_through[rounds[0]] += len(entry.data)
        return False

    def next_round() -> None:
        rounds[0] += 1
        asyncio.get_running_loop().call_soon(next_round)

    next_round()
    await asyncio.gather(*(read(bench, revision, predicate) for _ in range(REQUESTS)))
    assert gone_through.total() >= REQUESTS * OBJECTS * SIZE
    assert max(gone_through.values()) <= pacing.SLICE_BYTES


async def test_a_request_of_small_objects_waits_for_no_turn(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        await bench.create(pod(f"p{number}"))
    monkeypatch.setattr(pacing.time, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(pacing.TimeSlice, "turn", None)
    found = await bench.pods.choose(PODS, lambda entry: entry.fields["metadata.name"] > "p1", 3, "", costly=False)
    assert [entry.fields["metadata.name"] for entry in found.entries] == ["p10", "p11", "p12"]
    assert (found.more, found.remaining) == (True, 45)


async def test_pages_of_large_values_are_cut_by_their_bytes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "PAGE_BYTES", 3 * SIZE)
    revision = await fill(bench)
    page = await bench.store.list(PODS, limit=10)
    assert (len(page.items), page.more, page.remaining) == (3, True, OBJECTS + 1 - 3)
    assert len((await bench.store.list(PODS)).items) == OBJECTS + 1
    for limit in (0, 5, OBJECTS, 50):
        options = {"resource_version": str(revision), "match": "Exact", "limit": limit}
        found = await list_objects(bench.cache, bench.pods, PODS, **options)
        assert len(found.entries) == min(limit or OBJECTS, OBJECTS)
        assert (found.remaining or 0) == OBJECTS - len(found.entries)
        assert bool(found.continue_token) == bool(found.remaining)


async def test_old_changes_are_cut_by_the_bytes_of_both_states(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "PAGE_BYTES", 4 * SIZE)
    await fill(bench)
    for number in range(OBJECTS):
        await bench.delete(f"p{number:02}")
    batches = list[Batch]()
    async with aclosing(bench.store.watch(PODS, 0, previous=True)) as watch:
        while sum(len(batch.events) for batch in batches) < 3 * OBJECTS + 1:
            batches.append(await anext(watch))
    sizes = [sum(len(e.value) + len(e.previous.value if e.previous else b"") for e in b.events) for b in batches]
    assert max(sizes) <= 6 * SIZE
    revisions = [event.revision for batch in batches for event in batch.events]
    assert revisions == sorted(set(revisions))


async def test_a_subscriber_that_lets_large_changes_wait_reads_them_from_the_file(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "BACKLOG_BYTES", 3 * SIZE)
    async with aclosing(bench.store.watch(PODS, bench.cache.revision)) as watch:
        for number in range(OBJECTS):
            await bench.create(large(number))
            assert sum(len(event.value) for event in watch._pending) <= 3 * SIZE
        found = 0
        while found < OBJECTS:
            found += len((await anext(watch)).events)


async def test_recent_changes_that_are_too_large_to_wait_are_read_from_the_store(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = await fill(bench)
    monkeypatch.setattr(resource_cache, "QUEUE_BYTES", 3 * SIZE)
    async with aclosing(bench.pods.watch(revision - OBJECTS)) as watcher:
        assert watcher._pending == []
        seen = [watch_event async for watch_event in _until(watcher, "small")]
    assert len(seen) == OBJECTS + 1


async def _until(watcher: Any, name: str) -> Any:
    async for watch_events in watcher:
        for watch_event in watch_events:
            yield watch_event
            if watch_event.entry.key.endswith(name):
                return
