from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from control.storage import codec, entry, recent_changes
from control.storage.cache import BOOKMARK_SECONDS, DROP_SECONDS, ROOT
from control.storage.entry import Entry
from control.storage.selector import Selector
from control.storage.store import Batch, Compacted, FutureRevision, Page, Unavailable, Unreadable, Watch
from control.storage.watcher import Watcher, WatchEvent
from kube import bounded_cache

from .conftest import PODS, Bench, make_bench, pod

SECRETS = "/registry/secrets/"


def is_web(entry: Entry) -> bool:
    return entry.labels.get("app") == "web"


async def take(watcher: Watcher, count: int) -> list[WatchEvent]:
    watch_events: list[WatchEvent] = []
    async with asyncio.timeout(10):
        while len(watch_events) < count:
            watch_events += await anext(watcher)
    return watch_events


def reported(watch_events: list[WatchEvent]) -> list[tuple[str, str, str]]:
    lines = [json.loads(watch_event.wire) for watch_event in watch_events]
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
    arrive, wanted = bench.cache._advance_to, bench.cache.revision + 1

    def late(revision: int) -> None:
        time.sleep(0.2)  # longer than the reader waits
        arrive(revision)

    monkeypatch.setattr(bench.cache, "_advance_to", late)
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
    kept.cache_protobuf(b"wire")
    bounded_cache.forget_all()
    assert kept.wire is None
    assert kept.obj is not view and kept.obj == view


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
            for watch_event in step.result():
                if watch_event.type == "DELETED":
                    del seen[watch_event.entry.key]
                else:
                    seen[watch_event.entry.key] = watch_event.entry.data.decode()

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
        lambda prefix, after, *, previous=False: BreakingWatch(watch(prefix, after, previous=previous), broken),
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
        bench.pods.watch(bench.cache.revision, selector=Selector(is_web)),
        bench.pods.watch(0, initial=True),
    ]
    missed = await bench.store.create(PODS + "default/missed", codec.encode(pod("missed")))
    await bench.clock.advance(1)
    await bench.cache.wait_fresh(missed.revision, timeout=10)
    for watcher in watchers:
        with pytest.raises(Compacted):
            while True:
                await asyncio.wait_for(anext(watcher), 10)


@pytest.mark.parametrize("during", [SECRETS, ROOT], ids=["the resource is listed", "everything is listed"])
async def test_a_resource_added_while_everything_is_listed_anew_has_no_gap(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    broken = await with_breaking_watch(bench, monkeypatch)
    sign = bench.pods.watch(bench.cache.revision)
    reached, gate, real = asyncio.Event(), asyncio.Event(), bench.store.list

    async def slow(prefix: str, *rest: Any, **more: Any) -> Page:
        page = await real(prefix, *rest, **more) if prefix == SECRETS else None
        if prefix == during:
            reached.set()
            await gate.wait()
        return page or await real(prefix, *rest, **more)

    async def miss() -> int:
        secret = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "missed", "namespace": "default"}}
        return (await bench.store.create(SECRETS + "default/missed", codec.encode(secret))).revision

    monkeypatch.setattr(bench.store, "list", slow)
    if during == SECRETS:
        adding = asyncio.create_task(bench.cache.add_resource(SECRETS, "Secret", "v1"))
        await reached.wait()
    broken.set()
    with pytest.raises(Compacted):
        await asyncio.wait_for(anext(sign), 10)
    if during == SECRETS:
        revision = await miss()
        await bench.clock.advance(1)
        await bench.cache.wait_fresh(revision, timeout=10)
        gate.set()
        secrets = await adding
    else:
        await bench.clock.advance(1)
        await reached.wait()
        secrets = await bench.cache.add_resource(SECRETS, "Secret", "v1")
        revision = await miss()
        gate.set()
        await bench.cache.wait_fresh(revision, timeout=10)
    assert [entry.key.rpartition("/")[2] for entry in secrets.list().entries] == ["missed"]


async def test_an_unforeseen_error_ends_neither_bookmarks_nor_the_cache(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher, send = bench.pods.watch(bench.cache.revision, bookmarks=True), bench.pods.send_bookmarks
    failures = iter([TypeError("a bug")])

    async def fail_once() -> None:
        for error in failures:
            raise error
        await send()

    monkeypatch.setattr(bench.pods, "send_bookmarks", fail_once)
    await bench.clock.advance(3 * BOOKMARK_SECONDS)
    assert [watch_event.type for watch_event in await take(watcher, 1)] == ["BOOKMARK"]


async def test_old_changes_of_an_idle_resource_are_evicted_and_read_from_the_store(bench: Bench) -> None:
    made = await bench.create(pod("gone"))
    deleted = await bench.delete("gone")
    await bench.clock.advance(recent_changes.KEPT_SECONDS + DROP_SECONDS)
    assert [each for each in gc.get_objects() if isinstance(each, Entry) and each.key == made.key] == []
    watcher = bench.pods.watch(after_revision=made.revision)
    assert reported(await take(watcher, 1)) == [("DELETED", "gone", str(deleted.revision))]
    watcher.close()


async def test_a_selector_that_fails_for_an_object_ends_its_own_watch_alone(bench: Bench) -> None:
    def broken(entry: Entry) -> bool:
        raise AttributeError("'int' object has no attribute 'get'")

    watchers = [bench.pods.watch(bench.cache.revision, selector=selector) for selector in (Selector(broken), None)]
    await bench.create(pod("a"))
    with pytest.raises(Unreadable, match="a selector cannot be evaluated for it"):
        await take(watchers[0], 1)
    assert [kind for kind, *_ in reported(await take(watchers[1], 1))] == ["ADDED"]
    assert bench.pods.get(PODS + "default/a") is not None
