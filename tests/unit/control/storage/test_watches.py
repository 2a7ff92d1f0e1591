"""Watches of the watch cache: selectors, replays, bookmarks, initial events, and watchers that do not keep up."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import pytest

from control.storage import codec, recent_changes
from control.storage.entry import Entry
from control.storage.selector import Selector
from control.storage.store import Compacted, FutureRevision

from .conftest import PODS, Bench, pod
from .test_cache import is_web, reported, take


async def settled(bench: Bench) -> None:
    """Wait until no change waits for the evaluation of selectors."""
    async with asyncio.timeout(10):
        while bench.cache.evaluations.waiting:
            await asyncio.sleep(0)


# -- watches ----------------------------------------------------------------------------------------------------------
async def test_a_watch_reports_changes_in_order_and_deletions_with_the_last_state(bench: Bench) -> None:
    async with aclosing(bench.pods.watch(bench.cache.revision)) as watcher:
        created = await bench.create(pod("a", labels={"x": "1"}))
        updated = await bench.update(pod("a", labels={"x": "2"}))
        deleted = await bench.delete("a")
        watch_events = await take(watcher, 3)
    revisions = [str(item.revision) for item in (created, updated, deleted)]
    assert reported(watch_events) == [
        ("ADDED", "a", revisions[0]),
        ("MODIFIED", "a", revisions[1]),
        ("DELETED", "a", revisions[2]),
    ]
    assert json.loads(watch_events[2].wire)["object"]["metadata"]["labels"] == {"x": "2"}
    assert watch_events[0].wire.endswith(b"}\n") and watch_events[0].wire.count(b"\n") == 1


async def test_watchers_share_one_encoding(bench: Bench) -> None:
    watchers = [bench.pods.watch(bench.cache.revision) for _ in range(3)]
    await bench.create(pod("a"))
    wires = {id((await take(watcher, 1))[0].wire) for watcher in watchers}
    assert len(wires) == 1
    for watcher in watchers:
        await watcher.aclose()


async def test_a_watch_of_a_folder_sees_only_that_folder(bench: Bench) -> None:
    start = bench.cache.revision
    folder, single = bench.pods.watch(start, PODS + "a/"), bench.pods.watch(start, PODS + "a/x")
    for namespace, name in (("b", "x"), ("ab", "x"), ("a", "xy"), ("a", "x")):
        await bench.create(pod(name, namespace))
    assert [n.entry.key for n in await take(folder, 2)] == [PODS + "a/xy", PODS + "a/x"]
    assert [n.entry.key for n in await take(single, 1)] == [PODS + "a/x"]
    late = [bench.pods.watch(start, PODS + "a/"), bench.pods.watch(start, PODS + "a/x")]
    assert [n.entry.key for n in await take(late[0], 2)] == [PODS + "a/xy", PODS + "a/x"]
    assert [n.entry.key for n in await take(late[1], 1)] == [PODS + "a/x"]
    for watcher in (folder, single, *late):
        await watcher.aclose()


@pytest.mark.parametrize("costly", [False, True])
async def test_a_selector_turns_changes_into_appearing_and_leaving(bench: Bench, costly: bool) -> None:
    web, other = {"app": "web"}, {"app": "db"}
    start = bench.cache.revision
    live = bench.pods.watch(start, selector=Selector(is_web, costly=costly))
    items = [await bench.create(pod("a", labels=other))]
    for labels in (web, {**web, "v": "2"}, other, web):
        items.append(await bench.update(pod("a", labels=labels)))
    items.append(await bench.delete("a"))
    r = [str(item.revision) for item in items]
    expected = [
        ("ADDED", "a", r[1]),
        ("MODIFIED", "a", r[2]),
        ("DELETED", "a", r[3]),
        ("ADDED", "a", r[4]),
        ("DELETED", "a", r[5]),
    ]
    late = bench.pods.watch(start, selector=Selector(is_web, costly=costly))
    for watcher in (live, late):
        watch_events = await take(watcher, 5)
        assert reported(watch_events) == expected
        # What leaves is reported as it last matched, under the revision at which it left.
        assert json.loads(watch_events[2].wire)["object"]["metadata"]["labels"] == {**web, "v": "2"}
        await watcher.aclose()


async def test_watchers_with_costly_selectors_are_evaluated_one_in_each_iteration_of_the_event_loop(
    bench: Bench,
) -> None:
    rounds, requested = [0], list[int]()

    def predicate(entry: Entry) -> bool:
        requested.append(rounds[0])
        return True

    def next_round() -> None:
        rounds[0] += 1
        asyncio.get_running_loop().call_soon(next_round)

    watchers = [bench.pods.watch(bench.cache.revision, selector=Selector(predicate, costly=True)) for _ in range(50)]
    waiting = [asyncio.create_task(take(watcher, 1)) for watcher in watchers]
    await bench.create(pod("a"))
    assert requested == []
    next_round()
    assert all(reported(watch_events)[0][:2] == ("ADDED", "a") for watch_events in await asyncio.gather(*waiting))
    assert len(requested) == len(set(requested)) == 50


@pytest.mark.parametrize("costly", [False, True])
async def test_a_watcher_that_does_not_keep_up_is_dropped_for_changes_that_match_alone(
    bench: Bench, costly: bool
) -> None:
    watcher = bench.pods.watch(bench.cache.revision, selector=Selector(is_web, costly=costly), limit=3)
    for number in range(8):
        await bench.create(pod(f"other{number}"))
        await settled(bench)
    for number in range(3):
        await bench.create(pod(f"p{number}", labels={"app": "web"}))
        await settled(bench)
    assert not watcher.dropped and len(await take(watcher, 3)) == 3
    for number in range(4):
        await bench.create(pod(f"q{number}", labels={"app": "web"}))
        await settled(bench)
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(anext(watcher), 10)
    assert watcher.dropped


async def test_initial_events_of_a_costly_watch_are_those_that_match(bench: Bench) -> None:
    await bench.create(pod("a", labels={"app": "web"}))
    await bench.create(pod("b", labels={"app": "db"}))
    watcher = bench.pods.watch(
        0, selector=Selector(is_web, costly=True), initial=True, initial_end=True, bookmarks=True
    )
    await bench.create(pod("c", labels={"app": "web"}))
    watch_events = await take(watcher, 3)
    assert [(kind, name) for kind, name, _ in reported(watch_events)] == [
        ("ADDED", "a"),
        ("BOOKMARK", ""),
        ("ADDED", "c"),
    ]


async def test_a_watch_from_before_the_ring_is_replayed_from_the_store(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_changes, "MOST_CHANGES", 3)
    start = bench.cache.revision
    expected = []
    for i in range(10):
        expected.append(("ADDED", f"p{i}", str((await bench.create(pod(f"p{i}", labels={"app": "web"}))).revision)))
    expected.append(("DELETED", "p0", str((await bench.delete("p0")).revision)))
    for predicate in (None, is_web):
        async with aclosing(bench.pods.watch(start, selector=predicate and Selector(predicate))) as watcher:
            item = await bench.create(pod(f"live-{predicate is None}".lower(), labels={"app": "web"}))
            more = [("ADDED", f"live-{predicate is None}".lower(), str(item.revision))]
            assert reported(await take(watcher, len(expected) + 1)) == expected + more
            expected += more


async def test_the_ring_is_bounded_by_the_bytes_of_its_objects(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_changes, "MOST_BYTES", 5000)
    start, expected = bench.cache.revision, []
    for number in range(20):
        item = await bench.create(pod(f"p{number}", labels={"large": "x" * 1000}))
        expected.append(("ADDED", f"p{number}", str(item.revision)))
    assert sum(change.size for change in bench.pods.recent._changes) == bench.pods.recent._bytes <= 5000
    assert len(bench.pods.recent._changes) == 4
    async with aclosing(bench.pods.watch(start)) as watcher:
        assert reported(await take(watcher, 20)) == expected, "the store has what the ring has not"
    await bench.clock.advance(recent_changes.KEPT_SECONDS + 1)
    bench.pods.recent.drop_old()
    assert not bench.pods.recent._changes and bench.pods.recent._bytes == 0
    await bench.create(pod("huge", labels={"large": "x" * 6000}))
    assert not bench.pods.recent._changes and bench.pods.recent._bytes == 0


async def test_a_watch_from_a_compacted_revision_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_changes, "MOST_CHANGES", 1)
    first = await bench.create(pod("a"))
    for i in range(5):
        last = await bench.update(pod("a", labels={"i": str(i)}))
    await bench.store.compact(last.revision)
    with pytest.raises(Compacted):
        await take(bench.pods.watch(first.revision), 1)


async def test_a_watch_from_a_revision_to_come_is_refused(bench: Bench) -> None:
    with pytest.raises(FutureRevision):
        bench.pods.watch(bench.cache.revision + 1)


async def test_initial_events_end_with_an_annotated_bookmark(bench: Bench) -> None:
    for i in range(600):
        await bench.store.create(f"{PODS}default/p{i:03}", codec.encode(pod(f"p{i:03}")))
    await bench.cache.wait_current()
    at = bench.cache.revision
    async with aclosing(bench.pods.watch(0, initial=True, initial_end=True)) as watcher:
        await bench.create(pod("later"))
        watch_events = await take(watcher, 602)
    assert [n.type for n in watch_events] == ["ADDED"] * 600 + ["BOOKMARK", "ADDED"]
    mark = json.loads(watch_events[600].wire)["object"]
    assert mark["kind"] == "Pod" and mark["apiVersion"] == "v1"
    assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert mark["metadata"]["resourceVersion"] == str(at)
    assert watch_events[601].entry.key.endswith("/later")


async def test_bookmarks_are_sent_every_minute_if_requested(bench: Bench) -> None:
    requesting, silent = bench.pods.watch(bench.cache.revision, bookmarks=True), bench.pods.watch(bench.cache.revision)
    item = await bench.store.create(
        "/registry/minions/n", codec.encode({"kind": "Node", "apiVersion": "v1", "metadata": {}})
    )
    await bench.cache.wait_fresh(item.revision)
    await bench.clock.advance(61)
    (watch_event,) = await take(requesting, 1)
    assert reported([watch_event]) == [("BOOKMARK", "", str(item.revision))]
    await bench.create(pod("a"))
    assert [n.type for n in await take(silent, 1)] == ["ADDED"]
    await requesting.aclose()
    await silent.aclose()


async def test_a_watcher_that_does_not_keep_up_is_dropped_and_the_others_go_on(bench: Bench) -> None:
    slow = bench.pods.watch(bench.cache.revision, limit=3)
    quick = bench.pods.watch(bench.cache.revision)
    for i in range(6):
        await bench.create(pod(f"p{i}"))
    assert [watch_event async for watch_event in slow] == [] and slow.dropped
    assert len(await take(quick, 6)) == 6
    await quick.aclose()
    assert bench.pods._watched == {}


async def test_a_closed_watcher_wakes_its_reader(bench: Bench) -> None:
    watcher = bench.pods.watch(bench.cache.revision)
    reading = asyncio.ensure_future(anext(watcher, None))
    await asyncio.sleep(0)
    await watcher.aclose()
    assert await asyncio.wait_for(reading, 10) is None
