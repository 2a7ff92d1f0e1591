"""The contract of every storage engine (control/storage/store.py), engine by engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest

from control.storage.store import (
    Batch,
    Compacted,
    Event,
    FutureRevision,
    KeyExists,
    KeyNotFound,
    RevisionConflict,
    Store,
)

Opener = Callable[[], Awaitable[Store]]
PODS = "/registry/pods/"


async def take(watch: AsyncIterator[Batch], count: int) -> list[Event]:
    events: list[Event] = []
    async with asyncio.timeout(30):
        while len(events) < count:
            batch = await anext(watch)
            events += batch.events
            assert all(event.revision <= batch.revision for event in batch.events)
    return events


async def wait_for_compaction(store: Store, revision: int) -> None:
    await store.compact(revision)
    assert await store.compacted_revision() == revision


# -- reads and writes -----------------------------------------------------------------------------------------------
async def test_a_created_key_is_read_back_with_its_revisions(store: Store) -> None:
    item = await store.create(PODS + "default/a", b"1")
    assert item.revision == item.create_revision > 0
    assert await store.get(PODS + "default/a") == item
    assert await store.current_revision() == item.revision


async def test_a_missing_key_reads_as_none(store: Store) -> None:
    await store.create(PODS + "default/a", b"1")
    assert await store.get(PODS + "default/") is None


async def test_creating_an_existing_key_returns_the_existing_value(store: Store) -> None:
    first = await store.create("/k", b"1")
    with pytest.raises(KeyExists) as caught:
        await store.create("/k", b"2")
    assert caught.value.current == first
    assert await store.current_revision() == first.revision


async def test_an_update_keeps_the_create_revision_and_raises_the_revision(store: Store) -> None:
    first = await store.create("/k", b"1")
    second = await store.update("/k", b"2", first.revision)
    assert second.create_revision == first.revision < second.revision
    assert (await store.get("/k")) == second


async def test_an_update_at_another_revision_fails_and_shows_the_current_state(store: Store) -> None:
    first = await store.create("/k", b"1")
    second = await store.update("/k", b"2", first.revision)
    for expected in (first.revision, second.revision + 5, 0):
        with pytest.raises(RevisionConflict) as caught:
            await store.update("/k", b"3", expected)
        assert caught.value.current == second


async def test_updating_or_deleting_a_missing_key_raises_not_found(store: Store) -> None:
    with pytest.raises(KeyNotFound):
        await store.update("/k", b"1", 1)
    with pytest.raises(KeyNotFound):
        await store.delete("/k")


async def test_a_deletion_has_a_revision_and_returns_the_last_state(store: Store) -> None:
    first = await store.create("/k", b"1")
    with pytest.raises(RevisionConflict):
        await store.delete("/k", first.revision + 1)
    gone = await store.delete("/k", first.revision)
    assert (gone.value, gone.create_revision) == (b"1", first.revision)
    assert gone.revision > first.revision
    assert await store.get("/k") is None
    again = await store.create("/k", b"2")
    assert again.create_revision == again.revision > gone.revision


async def test_keys_are_any_text(store: Store) -> None:
    """Names of roles and of some other kinds may contain everything but "/" and "%"."""
    keys = sorted(
        ["/r/a", "/r/a\0", "/r/a\0b", "/r/\0", '/r/"', "/r/\\u0000", "/r/\u00e9", "/r/\U0001f6a2"], key=str.encode
    )
    for key in keys:
        await store.create(key, key.encode())
    for key in keys:
        found = await store.get(key)
        assert found is not None and found.value == key.encode()
    listed = await store.list("/r/")
    assert [(each.key, each.value) for each in listed.items] == [(key, key.encode()) for key in keys]


async def test_values_are_any_bytes(store: Store) -> None:
    value = bytes(range(256)) * 4096
    await store.create("/k", value)
    item = await store.get("/k")
    assert item is not None and item.value == value


async def test_of_concurrent_updates_at_one_revision_exactly_one_wins(store: Store) -> None:
    first = await store.create("/k", b"0")
    writes = [store.update("/k", str(i).encode(), first.revision) for i in range(50)]
    results = await asyncio.gather(*writes, return_exceptions=True)
    won = [result for result in results if not isinstance(result, BaseException)]
    assert len(won) == 1
    assert all(isinstance(result, RevisionConflict) for result in results if result is not won[0])
    assert await store.get("/k") == won[0]


async def test_each_operation_of_a_group_succeeds_or_fails_by_itself(store: Store) -> None:
    await store.create("/taken", b"1")
    writes = [store.create("/taken" if i == 25 else f"/k{i:02}", b"1") for i in range(50)]
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert [i for i, result in enumerate(results) if isinstance(result, BaseException)] == [25]
    assert isinstance(results[25], KeyExists)
    assert len((await store.list("/k")).items) == 49


async def test_counters_under_concurrent_compare_and_swap_lose_no_increment(store: Store) -> None:
    await store.create("/n", b"0")

    async def increment(times: int) -> None:
        while times:
            item = await store.get("/n")
            assert item is not None
            try:
                await store.update("/n", str(int(item.value) + 1).encode(), item.revision)
                times -= 1
            except RevisionConflict:
                continue

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(increment(10))
    item = await store.get("/n")
    assert item is not None and item.value == b"80"


# -- lists ------------------------------------------------------------------------------------------------------------
async def test_a_list_is_in_key_order_and_bounded_by_its_prefix(store: Store) -> None:
    for name in ("b/z", "a/y", "a/x", "ab/q"):
        await store.create(PODS + name, name.encode())
    await store.create("/registry/podsx/a", b"")
    page = await store.list(PODS)
    assert [item.key for item in page.items] == [PODS + n for n in ("a/x", "a/y", "ab/q", "b/z")]
    assert page.revision == await store.current_revision()
    assert not page.more and page.remaining == 0
    assert [item.value for item in (await store.list(PODS + "a/")).items] == [b"a/x", b"a/y"]


async def test_pages_of_a_list_join_without_gap_and_count_the_rest(store: Store) -> None:
    keys = [f"{PODS}{i:03}" for i in range(25)]
    for key in keys:
        await store.create(key, key.encode())
    seen: list[str] = []
    first = await store.list(PODS, limit=10)
    page = first
    while True:
        seen += [item.key for item in page.items]
        assert page.remaining == len(keys) - len(seen)
        if not page.more:
            break
        await store.create(f"{PODS}{seen[-1][-3:]}-later", b"")
        page = await store.list(PODS, revision=first.revision, start_after=seen[-1], limit=10)
        assert page.revision == first.revision
    assert seen == keys
    uncounted = await store.list(PODS, limit=10, counted=False)
    assert uncounted.more and [item.key for item in uncounted.items] == [item.key for item in first.items]


async def test_a_list_at_an_old_revision_shows_the_state_of_then(store: Store) -> None:
    a = await store.create("/a", b"1")
    b = await store.create("/b", b"1")
    await store.update("/a", b"2", a.revision)
    gone = await store.delete("/b")
    await store.create("/c", b"1")
    assert [(i.key, i.value) for i in (await store.list("/", revision=b.revision)).items] == [
        ("/a", b"1"),
        ("/b", b"1"),
    ]
    assert [(i.key, i.value) for i in (await store.list("/", revision=gone.revision)).items] == [("/a", b"2")]
    assert [i.key for i in (await store.list("/")).items] == ["/a", "/c"]


async def test_a_list_at_a_revision_to_come_is_refused(store: Store) -> None:
    item = await store.create("/a", b"1")
    with pytest.raises(FutureRevision) as caught:
        await store.list("/", revision=item.revision + 1)
    assert caught.value.current == item.revision


# -- watches ----------------------------------------------------------------------------------------------------------
async def test_a_watch_yields_every_later_change_once_and_in_order(store: Store) -> None:
    a = await store.create(PODS + "a", b"1")
    async with aclosing(store.watch(PODS, a.revision)) as watch:
        b = await store.create(PODS + "b", b"1")
        await store.create("/registry/nodes/n", b"")
        c = await store.update(PODS + "a", b"2", a.revision)
        d = await store.delete(PODS + "b")
        events = await take(watch, 3)
    assert [(e.type, e.key, e.value, e.revision) for e in events] == [
        ("ADDED", PODS + "b", b"1", b.revision),
        ("MODIFIED", PODS + "a", b"2", c.revision),
        ("DELETED", PODS + "b", b"", d.revision),
    ]
    assert [e.create_revision for e in events] == [b.revision, a.revision, b.revision]


async def test_an_object_that_is_created_again_is_added(store: Store) -> None:
    await store.create("/a", b"1")
    gone = await store.delete("/a")
    again = await store.create("/a", b"2")
    async with aclosing(store.watch("/", gone.revision, previous=True)) as watch:
        event = (await take(watch, 1))[0]
    assert (event.type, event.create_revision, event.previous) == ("ADDED", again.revision, None)


async def test_a_watch_from_the_past_replays_it_and_goes_on_live(store: Store) -> None:
    revisions = [(await store.create(f"/k{i}", b"")).revision for i in range(20)]
    async with aclosing(store.watch("/", revisions[4])) as watch:
        assert [e.revision for e in await take(watch, 15)] == revisions[5:]
        live = await store.create("/live", b"")
        assert [e.revision for e in await take(watch, 1)] == [live.revision]


async def test_a_watch_resumed_anywhere_has_neither_gap_nor_duplicate(store: Store) -> None:
    start = await store.current_revision()

    async def write(worker: int) -> None:
        for i in range(60):
            item = await store.create(f"/w{worker}/{i}", b"v")
            if i % 3 == 0:
                await store.delete(item.key)

    async def follow() -> list[int]:
        seen, position = [], start
        while len(seen) < 4 * 80:
            async with aclosing(store.watch("/", position)) as watch:
                for _ in range(3):
                    batch = await asyncio.wait_for(anext(watch), 30)
                    seen += [event.revision for event in batch.events]
                    position = batch.revision
                    if len(seen) >= 4 * 80:
                        break
        return seen

    async with asyncio.TaskGroup() as group:
        followers = [group.create_task(follow()) for _ in range(3)]
        for worker in range(4):
            group.create_task(write(worker))
    whole = followers[0].result()
    assert whole == sorted(set(whole)) and len(whole) == 320
    assert all(follower.result() == whole for follower in followers)


async def test_a_watch_returns_previous_states_if_requested(store: Store) -> None:
    a = await store.create("/a", b"1")
    b = await store.update("/a", b"2", a.revision)
    async with aclosing(store.watch("/", 0, previous=True)) as watch:
        assert [e.previous for e in await take(watch, 2)] == [None, a]
        await store.delete("/a")
        assert [e.previous for e in await take(watch, 1)] == [b]


async def test_progress_reports_the_revision_to_an_idle_watch(store: Store) -> None:
    async with aclosing(store.watch("/quiet/", await store.current_revision())) as watch:
        item = await store.create("/loud/a", b"")
        reported = 0
        async with asyncio.timeout(30):
            while reported < item.revision:  # what it says first may be from when it was opened
                watch.request_progress()
                batch = await anext(watch)
                assert not batch.events
                reported = batch.revision
        assert reported == item.revision


async def test_a_closed_watch_ends_its_iteration(store: Store) -> None:
    watch = store.watch("/", await store.current_revision())
    waiting = asyncio.ensure_future(anext(watch, None))
    await asyncio.sleep(0)
    await watch.aclose()
    assert await asyncio.wait_for(waiting, 30) is None


# -- compaction -------------------------------------------------------------------------------------------------------
async def test_compaction_forgets_the_past_and_keeps_the_present(store: Store) -> None:
    a = await store.create("/a", b"1")
    b = await store.create("/b", b"1")
    a2 = await store.update("/a", b"2", a.revision)
    gone = await store.delete("/b")
    c = await store.create("/c", b"1")
    await wait_for_compaction(store, gone.revision)
    for revision in (a.revision, b.revision, a2.revision):
        with pytest.raises(Compacted) as caught:
            await store.list("/", revision=revision)
        assert caught.value.compacted == gone.revision
    with pytest.raises(Compacted):
        async with aclosing(store.watch("/", a.revision)) as watch:
            await asyncio.wait_for(anext(watch), 30)
    assert [i.key for i in (await store.list("/", revision=gone.revision)).items] == ["/a"]
    assert [i.key for i in (await store.list("/")).items] == ["/a", "/c"]
    async with aclosing(store.watch("/", gone.revision)) as watch:
        assert [e.revision for e in await take(watch, 1)] == [c.revision]


async def test_a_watch_from_just_before_a_compacted_deletion_is_refused(store: Store) -> None:
    a = await store.create("/a", b"1")
    gone = await store.delete("/a")
    await store.create("/b", b"1")
    await wait_for_compaction(store, gone.revision)
    for previous in (False, True):
        with pytest.raises(Compacted):
            async with aclosing(store.watch("/", a.revision, previous=previous)) as watch:
                await asyncio.wait_for(anext(watch), 30)


async def test_compacting_backwards_or_into_the_future_is_refused(store: Store) -> None:
    a = await store.create("/a", b"1")
    b = await store.update("/a", b"2", a.revision)
    await store.compact(b.revision)
    with pytest.raises(Compacted):
        await store.compact(a.revision)
    with pytest.raises(FutureRevision):
        await store.compact(b.revision + 1)


async def test_revisions_go_on_after_the_last_row_was_deleted_and_compacted(open_store: Opener) -> None:
    store = await open_store()
    await store.create("/a", b"1")
    gone = await store.delete("/a")
    await store.compact(gone.revision)
    await store.close()
    store = await open_store()
    assert await store.current_revision() == gone.revision
    assert (await store.create("/a", b"1")).revision > gone.revision


# -- time to live -----------------------------------------------------------------------------------------------------
async def test_a_key_with_a_time_to_live_is_deleted_with_an_event(store: Store) -> None:
    item = await store.create("/e", b"1", ttl=1)
    async with aclosing(store.watch("/", item.revision)) as watch:
        (event,) = await take(watch, 1)
    assert (event.type, event.key) == ("DELETED", "/e") and event.revision > item.revision
    assert await store.get("/e") is None


async def test_an_update_without_time_to_live_makes_a_key_stay(store: Store) -> None:
    kept = await store.create("/kept", b"1", ttl=3)
    await store.update("/kept", b"2", kept.revision)
    start = await store.create("/gone", b"1", ttl=4)
    async with aclosing(store.watch("/", start.revision)) as watch:
        assert [e.key for e in await take(watch, 1)] == ["/gone"]
    assert await store.get("/kept") is not None


async def test_a_time_to_live_outlasts_a_restart(open_store: Opener) -> None:
    store = await open_store()
    item = await store.create("/e", b"1", ttl=1)
    await store.close()
    store = await open_store()
    async with aclosing(store.watch("/", item.revision)) as watch:
        assert [(e.type, e.key) for e in await take(watch, 1)] == [("DELETED", "/e")]


# -- restarts ---------------------------------------------------------------------------------------------------------
async def test_everything_is_there_after_a_restart_and_watches_resume(open_store: Opener) -> None:
    store = await open_store()
    items = [await store.create(f"/k{i}", str(i).encode()) for i in range(10)]
    gone = await store.delete("/k3")
    await store.close()
    store = await open_store()
    assert await store.current_revision() == gone.revision
    assert list((await store.list("/")).items) == [item for item in items if item.key != "/k3"]
    async with aclosing(store.watch("/", items[7].revision)) as watch:
        assert [e.revision for e in await take(watch, 3)] == [items[8].revision, items[9].revision, gone.revision]
    assert (await store.create("/new", b"")).revision > gone.revision
