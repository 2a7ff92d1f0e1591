"""Selectors of watches are evaluated once for a change, at their owner's expense, and leave the event loop to others."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable

import pytest

from control.storage import evaluation
from control.storage.entry import Entry
from control.storage.selector import Required, Selector
from control.storage.watched_folder import MOST_NAMES
from control.storage.watcher import Watcher
from control.storage.watcher_group import Group
from kube.rate import Rate

from .conftest import PODS, Bench, pod
from .test_cache import is_web, reported, take

COST = 0.0005


class Counted:
    """A predicate that takes half a millisecond of CPU time and counts its calls by iteration of the event loop."""

    def __init__(self) -> None:
        self.iteration, self.calls = 0, Counter[int]()

    def __call__(self, entry: Entry) -> bool:
        until = time.thread_time() + COST
        while time.thread_time() < until:
            pass
        self.calls[self.iteration] += 1
        return is_web(entry)

    @contextlib.asynccontextmanager
    async def iterations(self) -> AsyncIterator[None]:
        async def count() -> None:
            while True:
                await asyncio.sleep(0)
                self.iteration += 1

        task = asyncio.create_task(count())
        try:
            yield
        finally:
            task.cancel()


def watched(bench: Bench, matches: Callable[[Entry], bool], owner: str, **options: object) -> Watcher:
    selector = Selector(matches, **options)  # type: ignore[arg-type]
    return bench.pods.watch(bench.cache.revision, PODS + "default/", selector, owner=owner)


def web(name: str) -> dict[str, object]:
    return pod(name, labels={"app": "web"})


async def test_many_selectors_and_changes_are_spread_over_iterations_and_nothing_is_lost(bench: Bench) -> None:
    predicate = Counted()
    watchers = [watched(bench, predicate, "attacker") for _ in range(40)]
    plain = bench.pods.watch(bench.cache.revision)
    async with predicate.iterations():
        await asyncio.gather(*(bench.create(web(f"p{number}")) for number in range(10)))
        async with asyncio.timeout(60):
            expected = reported(await take(plain, 10))
            for watcher in watchers:
                assert reported(await take(watcher, 10)) == expected
    most = (evaluation.ITERATION_SECONDS + 2 * evaluation.SLICE_SECONDS) / COST
    assert sum(predicate.calls.values()) == 400
    assert max(predicate.calls.values()) <= most + 2, predicate.calls.most_common(3)


async def test_the_owner_is_charged_for_evaluations_and_others_are_not(bench: Bench) -> None:
    shares = bench.cache.evaluations._shares
    shares._rate = Rate(0.05, 0.001)
    predicate = Counted()
    attacking = [watched(bench, predicate, "attacker") for _ in range(100)]
    ordinary = watched(bench, is_web, "victim")
    for number in range(3):
        await bench.create(web(f"p{number}"))
    async with asyncio.timeout(60):
        assert len(await take(ordinary, 3)) == 3
        while not bench.cache.evaluations.account("attacker").late:
            await asyncio.sleep(0)
    assert not shares.delay("victim")
    before = sum(predicate.calls.values())
    await bench.create(web("later"))
    assert reported(await asyncio.wait_for(take(ordinary, 1), 10))[0][:2] == ("ADDED", "later")
    assert sum(predicate.calls.values()) - before < 100, "the attacker's share of time is used"
    for watcher in attacking:
        watcher.close()


@pytest.mark.parametrize("owners", [1, 20])
async def test_equal_selectors_are_evaluated_once_for_a_change(bench: Bench, owners: int) -> None:
    calls = list[str]()

    def matches(entry: Entry) -> bool:
        calls.append(entry.key)
        return is_web(entry)

    watchers = [watched(bench, matches, f"owner{n % owners}", key="app=web", parts=("labels",)) for n in range(40)]
    await bench.create(web("a"))
    assert [reported(await take(watcher, 1))[0][:2] for watcher in watchers] == [("ADDED", "a")] * 40
    assert len(calls) == 1
    await bench.update(pod("a", labels={"app": "web"}, node="n1"))
    assert [reported(await take(watcher, 1))[0][:2] for watcher in watchers] == [("MODIFIED", "a")] * 40
    assert len(calls) == 2, "the labels are those of before"
    await bench.update(pod("a"))
    assert [reported(await take(watcher, 1))[0][:2] for watcher in watchers] == [("DELETED", "a")] * 40


async def test_watches_of_a_field_value_are_looked_up(bench: Bench) -> None:
    calls = list[str]()

    def on(node: str) -> Callable[[Entry], bool]:
        def matches(entry: Entry) -> bool:
            calls.append(node)
            return entry.fields["spec.nodeName"] == node

        return matches

    nodes = [f"n{number}" for number in range(500)] + [""]
    watchers = {
        node: watched(
            bench, on(node), f"system:node:{node}", required=Required("fields", "spec.nodeName", frozenset({node}))
        )
        for node in nodes
    }
    await bench.create(pod("a"))
    await bench.update(pod("a", node="n7"))
    await bench.update(pod("a", node="n8"))
    await bench.delete("a")
    for node, kinds in (("", ["ADDED", "DELETED"]), ("n7", ["ADDED", "DELETED"]), ("n8", ["ADDED", "DELETED"])):
        assert [kind for kind, *_ in reported(await take(watchers[node], 2))] == kinds
    assert set(calls) == {"", "n7", "n8"}
    for watcher in watchers.values():
        watcher.close()
    assert bench.pods._watched == {}


async def test_selectors_by_more_names_than_are_looked_up_match_as_well(bench: Bench) -> None:
    watchers = []
    for number in range(MOST_NAMES + 5):
        name = f"l{number}"
        required = Required("labels", name, frozenset({"a", "b"}))
        watchers.append(watched(bench, lambda e, n=name: e.labels.get(n) in ("a", "b"), "owner", required=required))  # type: ignore[misc]
    names = [f"l{number}" for number in range(MOST_NAMES + 5)]
    await bench.create(pod("x", labels=dict.fromkeys(names, "b")))
    await bench.update(pod("x", labels=dict.fromkeys(names, "c")))
    for watcher in watchers:
        assert [kind for kind, *_ in reported(await take(watcher, 2))] == ["ADDED", "DELETED"]


async def test_a_costly_watch_does_not_wait_for_all_of_another_owner(bench: Bench) -> None:
    predicate = Counted()
    async with predicate.iterations():
        attacking = [watched(bench, predicate, "attacker", costly=True) for _ in range(200)]
        victim = watched(bench, is_web, "victim", costly=True)
        received = asyncio.create_task(take(victim, 1))
        created = asyncio.create_task(bench.create(web("a")))
        assert len(await asyncio.wait_for(received, 10)) == 1
        assert sum(predicate.calls.values()) < 100, "the attacker's watches came first"
        await created
        for watcher in attacking:
            watcher.close()


async def test_bookmarks_come_behind_changes_that_wait_and_new_watchers_get_nothing_twice(bench: Bench) -> None:
    def slow() -> Watcher:
        selector = Selector(is_web, "app=web", costly=True)
        return bench.pods.watch(bench.cache.revision, PODS, selector, owner="jane", bookmarks=True)

    first = slow()
    for number in range(5):  # no turn for the task in between
        event = await bench.store.create(f"{PODS}default/p{number}", b'{"metadata":{"labels":{"app":"web"}}}')
    await bench.cache.wait_fresh(event.revision)
    assert bench.cache.evaluations.waiting
    second = slow()
    await bench.pods.send_bookmarks()
    later = await bench.create(web("later"))
    seen = [(watch_event.type, watch_event.entry.revision) for watch_event in await take(first, 7)]
    assert [kind for kind, _ in seen] == ["ADDED"] * 5 + ["BOOKMARK", "ADDED"]
    assert [revision for _, revision in seen] == sorted(revision for _, revision in seen)
    found = [(each.type, each.entry.revision) for each in await take(second, 2)]
    assert found == [("BOOKMARK", event.revision), ("ADDED", later.revision)]


async def test_changes_that_wait_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = bench.cache.evaluations._shares
    shares.charge("jane", 100.0, stopped=False)
    selector = Selector(is_web, costly=True)
    watcher = bench.pods.watch(bench.cache.revision, PODS, selector, owner="jane", limit=3)
    (group,) = bench.pods._watched[PODS].groups()
    for number in range(3):
        await bench.create(web(f"p{number}"))
    assert len(group.pending) == 3 and not watcher.dropped
    await bench.create(web("p3"))
    assert watcher.dropped and not group.pending
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(anext(watcher), 10)


async def test_a_group_that_leaves_the_queue_in_the_last_moment_of_a_step_gets_later_changes(bench: Bench) -> None:
    class Interrupted(deque[Group]):
        """A queue after whose first `popleft` the step limit ends the step."""

        left = 1

        def popleft(self) -> Group:
            group = super().popleft()
            if self.left:
                self.left = 0
                raise TimeoutError
            return group

    watcher = watched(bench, is_web, "owner", costly=True)
    bench.cache.evaluations.account("owner").queue = Interrupted()
    await bench.create(web("a"))
    async with asyncio.timeout(10):
        assert reported(await take(watcher, 1))[0][:2] == ("ADDED", "a")
        while bench.cache.evaluations.waiting:
            await asyncio.sleep(0)
        await bench.create(web("b"))
        assert reported(await take(watcher, 1))[0][:2] == ("ADDED", "b")
