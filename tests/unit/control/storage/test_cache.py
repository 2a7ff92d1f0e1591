from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from control.storage import codec, entry, resource_cache
from control.storage.cache import FORGET_SECONDS
from control.storage.entry import Entry
from control.storage.store import Batch, Compacted, FutureRevision, Unavailable, Watch
from control.storage.watcher import Notice, Watcher
from kube import remembering

from .conftest import PODS, Bench, make_bench, pod


def is_web(entry: Entry) -> bool:
    return entry.labels.get("app") == "web"


async def take(watcher: Watcher, count: int) -> list[Notice]:
    notices: list[Notice] = []
    async with asyncio.timeout(10):
        while len(notices) < count:
            notices += await anext(watcher)
    return notices


def told(notices: list[Notice]) -> list[tuple[str, str, str]]:
    lines = [json.loads(notice.wire) for notice in notices]
    return [
        (line["type"], *(line["object"]["metadata"].get(k, "") for k in ("name", "resourceVersion"))) for line in lines
    ]


# -- reads ------------------------------------------------------------------------------------------------------------
async def test_an_acknowledged_write_is_seen_with_its_revision(bench: Bench) -> None:
    item = await bench.create(pod("a", node="n1"))
    found = bench.pods.get(item.key)
    assert found is not None
    assert found.revision == item.revision
    assert json.loads(found.data)["metadata"] == {
        "resourceVersion": str(item.revision),
        "name": "a",
        "namespace": "default",
    }
    assert found.fields == {"metadata.name": "a", "metadata.namespace": "default", "spec.nodeName": "n1"}


async def test_lists_are_sorted_and_cut_to_a_folder(bench: Bench) -> None:
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "y"), ("aa", "w")):
        await bench.create(pod(name, namespace))
    names = [e.key.removeprefix(PODS) for e in bench.pods.list().entries]
    assert names == ["a/y", "a/z", "aa/w", "b/x"]
    assert [e.key for e in bench.pods.list(PODS + "a/").entries] == [PODS + "a/y", PODS + "a/z"]
    assert [e.key for e in bench.pods.list(PODS + "a/y").entries] == [PODS + "a/y"]
    assert bench.pods.list(PODS + "a").entries == []
    page = bench.pods.list(PODS, limit=3)
    assert page.more and page.remaining == 1
    assert [e.key for e in bench.pods.list(PODS, start_after=page.entries[-1].key).entries] == [PODS + "b/x"]


async def test_deletions_and_labels_are_followed(bench: Bench) -> None:
    await bench.create(pod("a", labels={"app": "web"}))
    await bench.create(pod("b"))
    assert [e.key for e in bench.pods.list(predicate=is_web).entries] == [PODS + "default/a"]
    await bench.update(pod("b", labels={"app": "web"}))
    await bench.delete("a")
    assert [e.key for e in bench.pods.list(predicate=is_web).entries] == [PODS + "default/b"]
    assert bench.pods.get(PODS + "default/a") is None


async def test_waiting_for_a_revision_that_does_not_come_fails(bench: Bench) -> None:
    with pytest.raises(FutureRevision):
        await bench.cache.wait_fresh(bench.cache.revision + 100, timeout=0.01)


async def test_a_revision_that_came_is_not_too_large_however_long_the_loop_was_held_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrive, wanted = bench.cache._arrive, bench.cache.revision + 1

    def late(revision: int) -> None:
        time.sleep(0.2)  # longer than the reader waits
        arrive(revision)

    monkeypatch.setattr(bench.cache, "_arrive", late)
    waiting = asyncio.create_task(bench.cache.wait_fresh(wanted, timeout=0.1))
    await asyncio.sleep(0)
    await bench.store.create(bench.key(pod("a")), codec.encode(pod("a")))
    await waiting
    assert bench.cache.revision >= wanted


async def test_waiting_in_vain_leaves_nothing_behind(bench: Bench) -> None:
    for _ in range(20):
        with pytest.raises(FutureRevision):
            await bench.cache.wait_fresh(10**15, timeout=0.0001)
    cancelled = asyncio.create_task(bench.cache.wait_fresh(10**15))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    assert bench.cache._waiting == []


async def test_waiting_for_now_covers_writes_to_resources_nobody_caches(bench: Bench) -> None:
    item = await bench.store.create("/registry/unknown/x", b"{}")
    assert await bench.cache.wait_current() >= item.revision


async def test_what_cannot_be_decoded_is_passed_over(bench: Bench) -> None:
    await bench.store.create(PODS + "default/bad", b"k8s\x00")
    await bench.create(pod("good"))
    assert [e.key for e in bench.pods.list().entries] == [PODS + "default/good"]


async def test_a_start_finds_what_was_stored_before_even_what_cannot_be_decoded(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path / "state.db")
    await bench.store.create(PODS + "default/a", codec.encode(pod("a")))
    await bench.store.create(PODS + "default/bad", b"k8s\x00")
    await bench.start()
    assert [e.key for e in bench.pods.list().entries] == [PODS + "default/a"]
    await bench.stop()


async def test_a_resource_added_later_has_everything_from_before_and_after(bench: Bench) -> None:
    def widget(name: str) -> bytes:
        return codec.encode({"kind": "Widget", "apiVersion": "x.io/v1", "metadata": {"name": name}})

    folder = "/registry/x.io/widgets/"
    await bench.store.create(folder + "default/a", widget("a"))
    adding = asyncio.create_task(bench.cache.add_resource(folder, "Widget", "x.io/v1"))
    await asyncio.gather(*(bench.store.create(f"{folder}default/b{i}", widget("b")) for i in range(20)))
    widgets = await adding
    item = await bench.store.create(folder + "default/c", widget("c"))
    await bench.cache.wait_fresh(item.revision)
    assert len(widgets) == 22
    bench.cache.remove_resource(folder)


async def test_only_some_decoded_views_are_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "KEPT_VIEWS", 2)
    entries = [bench.pods.entry(f"{PODS}d/{i}", codec.encode(pod(str(i))), 1) for i in range(50)]
    views = [e.obj for e in entries]
    assert entries[-1].obj is views[-1]
    assert entries[0].obj is not views[0] and entries[0].obj == views[0]


async def test_decoded_views_of_large_objects_are_fewer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (
        bench.pods.entry(PODS + name, codec.encode(pod(name, labels={"x": "x" * size})), 1)
        for name, size in (("small", 10), ("large", 5000))
    )
    monkeypatch.setattr(entry, "KEPT_VIEWS_BYTES", 5000)
    assert small.obj is small.obj
    assert large.obj is not large.obj and large.obj == codec.decode(large.data)
    assert small._obj is None  # it had to go first


async def test_what_was_made_of_an_object_is_forgotten_with_the_other_caches(bench: Bench) -> None:
    kept = bench.pods.entry(PODS + "d/a", codec.encode(pod("a")), 1)
    view = kept.obj
    kept.keep_wire(b"wire")
    remembering.forget_all()
    assert kept.wire is None
    assert kept.obj is not view and kept.obj == view


# -- watches ----------------------------------------------------------------------------------------------------------
async def test_a_watch_tells_changes_in_order_and_deletions_with_the_last_state(bench: Bench) -> None:
    async with aclosing(bench.pods.watch(bench.cache.revision)) as watcher:
        created = await bench.create(pod("a", labels={"x": "1"}))
        updated = await bench.update(pod("a", labels={"x": "2"}))
        deleted = await bench.delete("a")
        notices = await take(watcher, 3)
    revisions = [str(item.revision) for item in (created, updated, deleted)]
    assert told(notices) == [
        ("ADDED", "a", revisions[0]),
        ("MODIFIED", "a", revisions[1]),
        ("DELETED", "a", revisions[2]),
    ]
    assert json.loads(notices[2].wire)["object"]["metadata"]["labels"] == {"x": "2"}
    assert notices[0].wire.endswith(b"}\n") and notices[0].wire.count(b"\n") == 1


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
    live = bench.pods.watch(start, predicate=is_web, costly=costly)
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
    late = bench.pods.watch(start, predicate=is_web, costly=costly)
    for watcher in (live, late):
        notices = await take(watcher, 5)
        assert told(notices) == expected
        # What leaves is reported as it last matched, under the revision at which it left.
        assert json.loads(notices[2].wire)["object"]["metadata"]["labels"] == {**web, "v": "2"}
        await watcher.aclose()


async def test_watchers_with_costly_selectors_are_asked_one_in_a_round_of_the_loop(bench: Bench) -> None:
    rounds, asked = [0], list[int]()

    def predicate(entry: Entry) -> bool:
        asked.append(rounds[0])
        return True

    def next_round() -> None:
        rounds[0] += 1
        asyncio.get_running_loop().call_soon(next_round)

    watchers = [bench.pods.watch(bench.cache.revision, predicate=predicate, costly=True) for _ in range(50)]
    waiting = [asyncio.create_task(take(watcher, 1)) for watcher in watchers]
    await bench.create(pod("a"))
    assert asked == []
    next_round()
    assert all(told(notices)[0][:2] == ("ADDED", "a") for notices in await asyncio.gather(*waiting))
    assert len(asked) == len(set(asked)) == 50


async def test_a_costly_watcher_that_does_not_keep_up_is_dropped(bench: Bench) -> None:
    watcher = bench.pods.watch(bench.cache.revision, predicate=is_web, costly=True, limit=3)
    for number in range(4):
        await bench.create(pod(f"p{number}"))
    with pytest.raises(StopAsyncIteration):
        await anext(watcher)
    assert watcher.dropped


async def test_initial_events_of_a_costly_watch_are_those_that_match(bench: Bench) -> None:
    await bench.create(pod("a", labels={"app": "web"}))
    await bench.create(pod("b", labels={"app": "db"}))
    watcher = bench.pods.watch(0, predicate=is_web, initial=True, initial_end=True, bookmarks=True, costly=True)
    await bench.create(pod("c", labels={"app": "web"}))
    notices = await take(watcher, 3)
    assert [(kind, name) for kind, name, _ in told(notices)] == [("ADDED", "a"), ("BOOKMARK", ""), ("ADDED", "c")]


async def test_a_watch_from_before_the_ring_is_replayed_from_the_store(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_cache, "RING", 3)
    start = bench.cache.revision
    expected = []
    for i in range(10):
        expected.append(("ADDED", f"p{i}", str((await bench.create(pod(f"p{i}", labels={"app": "web"}))).revision)))
    expected.append(("DELETED", "p0", str((await bench.delete("p0")).revision)))
    for predicate in (None, is_web):
        async with aclosing(bench.pods.watch(start, predicate=predicate)) as watcher:
            item = await bench.create(pod(f"live-{predicate is None}".lower(), labels={"app": "web"}))
            more = [("ADDED", f"live-{predicate is None}".lower(), str(item.revision))]
            assert told(await take(watcher, len(expected) + 1)) == expected + more
            expected += more


async def test_the_ring_is_bounded_by_the_bytes_of_its_objects(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_cache, "RING_BYTES", 5000)
    start, expected = bench.cache.revision, []
    for number in range(20):
        item = await bench.create(pod(f"p{number}", labels={"large": "x" * 1000}))
        expected.append(("ADDED", f"p{number}", str(item.revision)))
    assert sum(change.size for change in bench.pods._ring) == bench.pods._ring_bytes <= 5000
    assert len(bench.pods._ring) == 4
    async with aclosing(bench.pods.watch(start)) as watcher:
        assert told(await take(watcher, 20)) == expected, "the store has what the ring has not"
    await bench.clock.advance(resource_cache.RING_SECONDS + 1)
    bench.pods.forget_old()
    assert not bench.pods._ring and bench.pods._ring_bytes == 0
    await bench.create(pod("huge", labels={"large": "x" * 6000}))
    assert not bench.pods._ring and bench.pods._ring_bytes == 0


async def test_a_watch_from_a_compacted_revision_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_cache, "RING", 1)
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
        notices = await take(watcher, 602)
    assert [n.type for n in notices] == ["ADDED"] * 600 + ["BOOKMARK", "ADDED"]
    mark = json.loads(notices[600].wire)["object"]
    assert mark["kind"] == "Pod" and mark["apiVersion"] == "v1"
    assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert mark["metadata"]["resourceVersion"] == str(at)
    assert notices[601].entry.key.endswith("/later")


async def test_bookmarks_come_every_minute_to_those_who_asked(bench: Bench) -> None:
    asking, silent = bench.pods.watch(bench.cache.revision, bookmarks=True), bench.pods.watch(bench.cache.revision)
    item = await bench.store.create(
        "/registry/minions/n", codec.encode({"kind": "Node", "apiVersion": "v1", "metadata": {}})
    )
    await bench.cache.wait_fresh(item.revision)
    await bench.clock.advance(61)
    (notice,) = await take(asking, 1)
    assert told([notice]) == [("BOOKMARK", "", str(item.revision))]
    await bench.create(pod("a"))
    assert [n.type for n in await take(silent, 1)] == ["ADDED"]
    await asking.aclose()
    await silent.aclose()


async def test_a_watcher_that_does_not_keep_up_is_dropped_and_the_others_go_on(bench: Bench) -> None:
    slow = bench.pods.watch(bench.cache.revision, limit=3)
    quick = bench.pods.watch(bench.cache.revision)
    for i in range(6):
        await bench.create(pod(f"p{i}"))
    assert [notice async for notice in slow] == [] and slow.dropped
    assert len(await take(quick, 6)) == 6
    await quick.aclose()
    assert bench.pods._watchers == {}


async def test_a_closed_watcher_wakes_its_reader(bench: Bench) -> None:
    watcher = bench.pods.watch(bench.cache.revision)
    reading = asyncio.ensure_future(anext(watcher, None))
    await asyncio.sleep(0)
    await watcher.aclose()
    assert await asyncio.wait_for(reading, 10) is None


async def test_a_list_and_a_watch_from_it_equal_the_state_for_everyone(bench: Bench) -> None:
    state: dict[str, dict[str, Any]] = {}

    async def write(worker: int) -> None:
        for i in range(40):
            name = f"w{worker}-{i % 7}"
            if (PODS + "default/" + name) not in {e.key for e in bench.pods.list().entries}:
                await bench.create(pod(name, labels={"i": str(i)}))
            elif i % 5 == 0:
                await bench.delete(name)
            else:
                await bench.update(pod(name, labels={"i": str(i)}))

    async def follow(done: asyncio.Event) -> dict[str, str]:
        listing = bench.pods.list()
        seen = {e.key: e.data.decode() for e in listing.entries}
        watcher = bench.pods.watch(listing.revision)
        while True:
            step = asyncio.ensure_future(anext(watcher))
            finish = asyncio.ensure_future(done.wait())
            await asyncio.wait({step, finish}, return_when=asyncio.FIRST_COMPLETED)
            finish.cancel()
            if not step.done():
                step.cancel()
                await watcher.aclose()
                return seen
            for notice in step.result():
                if notice.type == "DELETED":
                    del seen[notice.entry.key]
                else:
                    seen[notice.entry.key] = notice.entry.data.decode()

    done = asyncio.Event()
    followers = [asyncio.create_task(follow(done)) for _ in range(5)]
    await asyncio.gather(*(write(w) for w in range(4)))
    await bench.cache.wait_current()
    for _ in range(5):
        await asyncio.sleep(0)
    done.set()
    state = {e.key: e.data.decode() for e in bench.pods.list().entries}
    for follower in followers:
        assert await follower == state


# -- starting over ----------------------------------------------------------------------------------------------------
class BreakingWatch:
    """A store's watch that fails when told, as a connection to a remote engine does."""

    def __init__(self, inner: Watch, broken: asyncio.Event) -> None:
        self._inner, self._broken = inner, broken
        self.request_progress = inner.request_progress
        self.aclose = inner.aclose

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        step = asyncio.ensure_future(anext(self._inner))
        failing = asyncio.ensure_future(self._broken.wait())
        await asyncio.wait({step, failing}, return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            step.cancel()
            self._broken.clear()
            raise Unavailable("the connection is lost")
        failing.cancel()
        return step.result()


async def with_breaking_watch(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Restart the cache on a store whose watch breaks when the returned event is set; one pod is there."""
    await bench.stop_cache()
    broken, watch = asyncio.Event(), bench.store.watch
    monkeypatch.setattr(
        bench.store,
        "watch",
        lambda prefix, after, previous=False: BreakingWatch(watch(prefix, after, previous), broken),
    )
    await bench.start()
    await bench.create(pod("before"))
    return broken


async def test_after_a_lost_store_watch_everything_is_listed_anew_and_watchers_are_sent_away(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = await with_breaking_watch(bench, monkeypatch)
    watcher = bench.pods.watch(bench.cache.revision)
    broken.set()
    with pytest.raises(Compacted):
        await asyncio.wait_for(anext(watcher), 10)
    item = await bench.store.create(PODS + "default/missed", codec.encode(pod("missed")))
    await bench.clock.advance(1)
    await bench.cache.wait_fresh(item.revision, timeout=10)
    await bench.create(pod("after"))
    assert [e.key.rpartition("/")[2] for e in bench.pods.list().entries] == ["after", "before", "missed"]


async def test_a_watch_opened_while_everything_is_listed_anew_has_no_gap(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = await with_breaking_watch(bench, monkeypatch)
    sign = bench.pods.watch(bench.cache.revision)
    broken.set()
    with pytest.raises(Compacted):
        await asyncio.wait_for(anext(sign), 10)
    # The cache pauses before it lists again.
    watchers = [
        bench.pods.watch(bench.cache.revision),
        bench.pods.watch(bench.cache.revision, predicate=is_web),
        bench.pods.watch(0, initial=True),
    ]
    missed = await bench.store.create(PODS + "default/missed", codec.encode(pod("missed")))
    await bench.clock.advance(1)
    await bench.cache.wait_fresh(missed.revision, timeout=10)
    for watcher in watchers:
        with pytest.raises(Compacted):
            while True:
                await asyncio.wait_for(anext(watcher), 10)


async def test_changes_of_a_resource_that_is_quiet_since_are_forgotten_and_told_from_the_store(bench: Bench) -> None:
    made = await bench.create(pod("gone"))
    deleted = await bench.delete("gone")
    await bench.clock.advance(resource_cache.RING_SECONDS + FORGET_SECONDS)
    assert [each for each in gc.get_objects() if isinstance(each, Entry) and each.key == made.key] == []
    watcher = bench.pods.watch(after_revision=made.revision)
    assert told(await take(watcher, 1)) == [("DELETED", "gone", str(deleted.revision))]
    watcher.close()
