"""Reads of old changes for watches: one thread at most, round robin over users, and a share of time for each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import Any

import pytest

from control.storage import history_reads, recent_changes
from control.storage import reader as sql
from control.storage.history_reads import HistoryReads
from control.storage.memory import MemoryStore
from control.storage.memory_watch import MemoryWatch
from control.storage.store import Batch, Compacted
from control.storage.watcher import Watcher

from .conftest import PODS, Bench, pod
from .test_cache import reported, take


class Gate:
    """Blocks the threads that read old changes while it is closed."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read, self._open = read, threading.Event()
        self.prefixes = list[str]()
        self.open, self.entered = self._open.set, threading.Semaphore(0)

    def __call__(self, connection: Any, prefix: str, *rest: Any) -> Any:
        self.prefixes.append(prefix)
        self.entered.release()
        assert self._open.wait(20)
        return self._read(connection, prefix, *rest)


@pytest.fixture
async def gate(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gate]:
    """Ten pods of each of the namespaces a and b are older than the ring buffer; reads of old changes are blocked."""
    monkeypatch.setattr(recent_changes, "MOST_CHANGES", 1)
    for number in range(10):
        await bench.create(pod(f"p{number}", "a"))
        await bench.create(pod(f"p{number}", "b"))
    made = Gate(sql.events)
    monkeypatch.setattr(sql, "events", made)
    yield made
    made.open()


def old_watches(bench: Bench, namespace: str, owner: str, count: int) -> list[asyncio.Task[list[Any]]]:
    watchers = [bench.pods.watch(1, f"{PODS}{namespace}/", owner=owner) for _ in range(count)]
    return [asyncio.create_task(read_one(watcher)) for watcher in watchers]


async def read_one(watcher: Watcher) -> list[Any]:
    async with aclosing(watcher):
        return list(await take(watcher, 1))


async def ended(tasks: list[asyncio.Task[list[Any]]]) -> list[Any]:
    async with asyncio.timeout(20):
        return await asyncio.gather(*tasks, return_exceptions=True)


async def entered(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.entered.acquire, timeout=10)


async def test_other_reads_have_a_thread_while_watches_from_old_revisions_wait(bench: Bench, gate: Gate) -> None:
    waiting = old_watches(bench, "a", "mallory", 50)
    await entered(gate)
    async with asyncio.timeout(10):
        assert await bench.store.compacted_revision() == 0
        assert (await bench.store.list(f"{PODS}b/", limit=3)).more
    gate.open()
    assert all(len(watch_events) == 9 for watch_events in await ended(waiting))


async def test_commits_are_not_offered_to_watches_that_read_old_changes(bench: Bench, gate: Gate) -> None:
    waiting = old_watches(bench, "a", "mallory", 50)
    await entered(gate)
    assert len(bench.store._feed.subscriptions) == 1, "that of the watch cache"
    created = await bench.create(pod("late", "a"))
    gate.open()
    await ended(waiting)
    async with aclosing(bench.pods.watch(1, f"{PODS}a/")) as watcher:
        assert reported(await take(watcher, 10))[-1] == ("ADDED", "late", str(created.revision))


async def test_watches_of_other_users_read_before_the_next_one_of_a_user_with_many(bench: Bench, gate: Gate) -> None:
    waiting = old_watches(bench, "a", "mallory", 50)
    await entered(gate)
    waiting += old_watches(bench, "b", "victim", 1)
    await asyncio.sleep(0)
    gate.open()
    await ended(waiting)
    assert gate.prefixes.index(f"{PODS}b/") <= 2


async def test_a_user_whose_watches_wait_in_great_numbers_has_to_list_again(
    bench: Bench, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.cache.history._places, "_most", 5)
    waiting = old_watches(bench, "a", "mallory", 1)
    await entered(gate)
    waiting += old_watches(bench, "a", "mallory", 8) + old_watches(bench, "b", "victim", 1)
    await asyncio.wait(waiting[6:9], timeout=10)
    gate.open()
    results = await ended(waiting)
    assert [isinstance(result, Compacted) for result in results] == [False] * 6 + [True] * 3 + [False]


async def test_a_read_keeps_its_place_until_its_thread_is_free_also_if_the_client_leaves(
    bench: Bench, gate: Gate
) -> None:
    for _ in range(3):
        (gone,) = old_watches(bench, "a", "mallory", 1)
        await asyncio.sleep(0.01)
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone
    async with asyncio.timeout(10):
        assert await bench.store.compacted_revision() == 0
    assert len(gate.prefixes) == 1
    gate.open()
    assert [len(events) for events in await ended(old_watches(bench, "a", "mallory", 1))] == [9]


class SlowStore(MemoryStore):
    """A store whose watches take a quarter of the burst to open."""

    now = 0.0

    def watch(self, prefix: str, after_revision: int, *, previous: bool = False) -> MemoryWatch:
        self.now += history_reads.BURST_SECONDS / 4
        return super().watch(prefix, after_revision, previous=previous)


async def test_a_users_reads_take_a_fifth_of_all_time_after_a_burst() -> None:
    store = SlowStore()
    for number in range(3):
        await store.create(f"/a/{number}", b"{}")
    reads = HistoryReads(now=lambda: store.now)
    allowed = 0
    with pytest.raises(Compacted):
        while allowed < 20:
            batch = await reads.read(store, "mallory", "/a/", 0, 3)
            assert (len(batch.events), batch.revision) == (3, 3)
            allowed += 1
    assert 4 <= allowed <= 8
    assert len((await reads.read(store, "victim", "/a/", 0, 3)).events) == 3
    store.now += history_reads.BURST_SECONDS / history_reads.SHARE
    assert len((await reads.read(store, "mallory", "/a/", 0, 3)).events) == 3
    await store.close()


async def test_a_watch_from_an_old_revision_is_read_in_parts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_changes, "MOST_CHANGES", 1)
    monkeypatch.setattr("control.storage.feed.CHUNK", 3)
    monkeypatch.setattr(history_reads, "EVENTS", 6)
    for number in range(20):
        await bench.create(pod(f"p{number:02}"))
    async with aclosing(bench.pods.watch(0)) as watcher:
        parts = [await anext(watcher) for _ in range(4)]
        assert [len(part) for part in parts] == [6, 6, 6, 2]
        assert [event.entry.key[-3:] for part in parts for event in part] == [f"p{n:02}" for n in range(20)]


class PassingStore(MemoryStore):
    """A store that takes a tenth of a second for each change, of which none has the watch's prefix."""

    now, passed = 0.0, 0

    def watch(self, prefix: str, after_revision: int, *, previous: bool = False) -> PassingWatch:
        return PassingWatch(self, prefix, after_revision, previous=previous)


class PassingWatch(MemoryWatch):
    async def __anext__(self) -> Batch:
        assert isinstance(self._store, PassingStore)
        self._store.now += 0.1
        self._store.passed += 1
        self._seen += 1
        return Batch((), self._seen)


async def test_a_read_that_passes_over_many_changes_of_others_ends_and_goes_on_as_another_read() -> None:
    store = PassingStore()
    reads = HistoryReads(now=lambda: store.now)
    batch = await reads.read(store, "a", "/a/", 0, 80)
    assert batch.events == [] and 1 < batch.revision <= 2 * history_reads.SLICE_SECONDS / 0.1
    while batch.revision < 80:
        batch = await reads.read(store, "a", "/a/", batch.revision, 80)
    assert store.passed == 80
    with pytest.raises(Compacted):
        while batch.revision < 800:
            batch = await reads.read(store, "a", "/a/", batch.revision, 800)
