"""Watches of etcd over large changes: responses are fragments of bounded size, which may divide a revision."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace

import pytest

from control.storage.etcd import watch
from control.storage.etcd.messages import (
    DeleteRangeRequest,
    PutRequest,
    RequestOp,
    TxnRequest,
    TxnResponse,
    WatchResponse,
)
from control.storage.etcd.store import EtcdStore
from control.storage.etcd.watch_queue import BACKLOG_BYTES
from control.storage.history_reads import BYTES, HistoryReads
from control.storage.store import Batch, Compacted, Event, Item, Watch
from tests.support.etcd import Etcd, etcd, needs_etcd, open_etcd

pytestmark = needs_etcd
MAPS = "/registry/configmaps/"
LARGE = 1_000_000
FRAGMENT_BYTES = 4 << 20
"""A fragment of etcd has two MiB, or one event: a value and the one before."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Etcd]:
    async with etcd(tmp_path / "etcd") as one:
        yield one


@pytest.fixture
async def store(cluster: Etcd) -> AsyncIterator[EtcdStore]:
    opened = await open_etcd(cluster)
    yield opened
    await opened.close()


def observe(monkeypatch: pytest.MonkeyPatch, seen: Callable[[WatchResponse, int], None]) -> None:
    """Call a function with each response of a watch, and its length, when it arrives."""
    original = WatchResponse.FromString

    def read(data: bytes) -> WatchResponse:
        response = original(data)
        seen(response, len(data))
        return response

    monkeypatch.setattr(watch, "WatchResponse", SimpleNamespace(FromString=read))


async def updated(store: EtcdStore, key: str, times: int) -> tuple[Item, int]:
    """Create a key and replace its value by large ones; return its first state and the last revision."""
    first = await store.create(key, b"small")
    revision = first.revision
    for number in range(times):
        revision = (await store.update(key, b"%c" % (97 + number % 26) * LARGE, revision)).revision
    return first, revision


async def changes(watched: Watch, until: int) -> list[Batch]:
    batches = list[Batch]()
    async with asyncio.timeout(30):
        async for batch in watched:
            batches.append(batch)
            if batch.revision >= until:
                break
    return batches


def events_of(batches: list[Batch]) -> list[Event]:
    """Return the events, each of which is within the revisions that its batch completes."""
    after, events = 0, list[Event]()
    for batch in batches:
        assert all(after < event.revision <= batch.revision for event in batch.events), "a revision was divided"
        after = batch.revision
        events += batch.events
    return events


# -- bounds -----------------------------------------------------------------------------------------------------------
async def test_a_watch_of_large_changes_receives_them_in_fragments_each_once_and_in_order(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = await updated(store, MAPS + "evil/big", 30)
    sizes = list[int]()
    observe(monkeypatch, lambda _, size: sizes.append(size))
    async with aclosing(store.watch(MAPS, first.revision, previous=True)) as watched:
        events = events_of(await changes(watched, last))
    assert [event.revision for event in events] == list(range(first.revision + 1, last + 1))
    assert all(event.previous is not None and event.previous.revision == event.revision - 1 for event in events)
    assert max(sizes) < FRAGMENT_BYTES


async def test_a_read_of_old_changes_receives_little_more_than_it_returns(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = await updated(store, MAPS + "evil/big", 60)
    sizes = list[int]()
    observe(monkeypatch, lambda _, size: sizes.append(size))
    reads = HistoryReads()
    batch = await reads.read(store, "mallory", MAPS, first.revision, last)
    await reads.close()
    assert batch.revision < last and sum(len(event.value) for event in batch.events) >= BYTES / 3
    assert sum(sizes) < BYTES + BACKLOG_BYTES + 3 * FRAGMENT_BYTES


async def test_a_watch_whose_reader_is_slow_is_not_read_further(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = await updated(store, MAPS + "evil/big", 40)
    received = 0

    def count(response: WatchResponse, size: int) -> None:
        nonlocal received
        received += size

    observe(monkeypatch, count)
    async with aclosing(store.watch(MAPS, first.revision, previous=True)) as watched:
        async with asyncio.timeout(30):
            while received < BACKLOG_BYTES:
                await asyncio.sleep(0.01)
        for _ in range(20):
            await store.current_revision()  # meanwhile more could have arrived
        assert received < BACKLOG_BYTES + 3 * FRAGMENT_BYTES
        assert len(events_of(await changes(watched, last))) == 40


async def test_a_change_larger_than_a_response_may_be_ends_the_watch_as_a_compaction_does(tmp_path: Path) -> None:
    one = Etcd(tmp_path / "etcd", 1, tls=False)
    one.members[0].argv += ["--max-request-bytes", str(32 << 20)]
    try:
        await one.start()
        store = await open_etcd(one)
        first = await store.create(MAPS + "evil/big", b"a" * (9 << 20))
        await store.update(first.key, b"b" * (9 << 20), first.revision)
        async with aclosing(store.watch(MAPS, first.revision, previous=True)) as watched:
            with pytest.raises(Compacted):
                await asyncio.wait_for(anext(watched), 20)
        await store.close()
    finally:
        one.stop()


# -- revisions of several events --------------------------------------------------------------------------------------
KEYS = [f"{MAPS}evil/{number:02}" for number in range(20)]


async def commit(store: EtcdStore, *operations: RequestOp) -> int:
    request = TxnRequest(success=operations)
    done = await store.cluster.call("/etcdserverpb.KV/Txn", request, TxnResponse)
    return store.mapping.store_revision(done.header.revision)


async def two_large_transactions(store: EtcdStore) -> tuple[int, int, int]:
    """Create keys, replace all in one revision and delete all in the next one; return the three revisions."""
    for key in KEYS:
        created = (await store.create(key, b"a" * 70_000)).revision
    puts = [RequestOp(request_put=PutRequest(key=key.encode(), value=b"b" * 70_000)) for key in KEYS]
    put = await commit(store, *puts)
    everything = DeleteRangeRequest(key=MAPS.encode(), range_end=MAPS[:-1].encode() + b"0")
    deleted = await commit(store, RequestOp(request_delete_range=everything))
    return created, put, deleted


@pytest.mark.parametrize("previous", [True, False])
async def test_a_revision_that_fragments_divide_is_delivered_whole(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch, previous: bool
) -> None:
    created, put, deleted = await two_large_transactions(store)
    fragments = list[WatchResponse]()
    observe(monkeypatch, lambda response, _: fragments.append(response) if response.fragment else None)
    async with aclosing(store.watch(MAPS, created, previous=previous)) as watched:
        events = events_of(await changes(watched, deleted))
    assert fragments, "etcd sent no fragments"
    expected = [(put, "MODIFIED", key) for key in KEYS] + [(deleted, "DELETED", key) for key in KEYS]
    assert [(event.revision, event.type, event.key) for event in events] == expected
    assert all(event.create_revision < put for event in events)
    assert all((event.previous is not None) == previous for event in events)


async def test_a_stream_that_breaks_between_fragments_of_a_revision_loses_and_doubles_nothing(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    created, put, deleted = await two_large_transactions(store)
    broken = list[int]()

    def cut(response: WatchResponse, size: int) -> None:
        if response.fragment and len(broken) < 2:
            broken.append(len(response.events))
            for stream in tuple(store.cluster._streams[0]):
                asyncio.get_running_loop().call_soon(stream.cancel)

    observe(monkeypatch, cut)
    async with aclosing(store.watch(MAPS, created, previous=True)) as watched:
        events = events_of(await changes(watched, deleted))
    assert len(broken) == 2 and broken[0] % len(KEYS)
    assert [event.revision for event in events] == [put] * len(KEYS) + [deleted] * len(KEYS)
    assert [event.key for event in events] == KEYS * 2


async def test_a_revision_too_large_to_be_held_ends_the_watch_as_a_compaction_does(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    created, put, _ = await two_large_transactions(store)
    monkeypatch.setattr(watch, "REVISION_BYTES", 1 << 20)
    async with aclosing(store.watch(MAPS, created, previous=True)) as watched:
        with pytest.raises(Compacted):
            await asyncio.wait_for(changes(watched, put), 20)
