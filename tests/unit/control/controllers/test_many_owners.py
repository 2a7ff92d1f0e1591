"""The garbage collector and objects with thousands of owners: look-ups, turns, and what other objects pay for them."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from control.controllers.context import Context
from control.controllers.discovery import DiscoveredResource
from control.controllers.garbage import GarbageCollector
from control.controllers.garbage.collector import REDISCOVER_SECONDS
from control.controllers.garbage.graph import FOREGROUND, PART, Graph, Item
from control.controllers.garbage.metadata import Metadata, Owner, Partial
from control.controllers.step_counter import REQUEST_STEPS, STEPS_PER_ITERATION
from kube.informer import Change
from tests.support.clock import FakeClock, settle
from tests.support.product_world import World

MAPS = DiscoveredResource("", "v1", "configmaps", "ConfigMap", True, frozenset())


def owners(count: int, *, names: int, kind: str = "ConfigMap") -> tuple[Owner, ...]:
    return tuple(Owner("v1", kind, f"o{n % names}", f"uid-{n}", n % 2 == 0) for n in range(count))


def item(uid: str, refs: tuple[Owner, ...] = (), **more: Any) -> Item:
    return Item(MAPS, "default", uid, uid, "1", refs, more.get("finalizers", ()), more.get("deleting", False))


class Counting(World):
    lookups = 0

    async def request(self, method: str, path: str, **options: Any) -> Any:
        self.lookups += method == "GET" and "/configmaps/o" in path
        return await super().request(method, path, **options)


def collector(api: World, dependent: Item) -> GarbageCollector:
    made = GarbageCollector(Context(api.client(), FakeClock()))
    made._monitors.kinds = {("", "ConfigMap"): MAPS}
    made.graph.put(dependent)
    return made


@pytest.mark.parametrize(("count", "names"), [(3000, 3000), (3000, 7)])
async def test_absent_owners_are_fetched_once_by_name_and_with_limited_concurrency(count: int, names: int) -> None:
    api = Counting()
    made = collector(api, item("x", owners(count, names=names)))
    task = asyncio.create_task(made.reconcile("x"))
    seen = []
    while not task.done():
        await settle(1)
        seen.append(api.lookups)
    await task
    assert api.lookups == names
    assert (
        max(after - before for before, after in zip([0, *seen], seen, strict=False))
        <= STEPS_PER_ITERATION // REQUEST_STEPS + 1
    )


async def test_of_absent_owners_nothing_is_cached_that_is_as_long_as_their_names() -> None:
    refs = tuple(Owner("v1", "ConfigMap", f"o{n}", f"{n}" + "u" * 100_000, True) for n in range(5))
    made = collector(Counting(), item("x", refs))
    assert set((await made._owner_states.of(made.graph.items["x"])).values()) == {"gone"}
    assert [len(key) for key in made._owner_states._absent] == [32] * 5


async def test_absent_owners_are_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    made = collector(Counting(), item("x", owners(20, names=20)))
    await made.reconcile("x")
    assert len(made._owner_states._absent) == 20

    async def monitored(group: asyncio.TaskGroup) -> dict[str, Any]:
        return {}

    monkeypatch.setattr(made._monitors, "update", monitored)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(made._follow_discovery(group))
        await settle(3)
        await made._clock.advance(REDISCOVER_SECONDS)  # type: ignore[attr-defined]
        await settle(3)
        following.cancel()
    assert not made._owner_states._absent


async def test_known_owners_are_resolved_in_slices() -> None:
    api = Counting()
    made = collector(api, item("x", owners(4 * STEPS_PER_ITERATION, names=9, kind="Unknown")))
    task = asyncio.create_task(made.reconcile("x"))
    await settle(3)
    assert not task.done()
    await task
    assert api.lookups == 0


def test_an_owner_that_comes_or_goes_costs_nothing_for_the_other_owners_of_its_dependents() -> None:
    class Refs(tuple[Owner, ...]):
        read = 0

        def __iter__(self) -> Any:
            Refs.read += 1
            return super().__iter__()

    graph = Graph()
    graph.put(item("x", Refs(owners(50, names=50))))
    Refs.read = 0
    graph.put(item("uid-4"))
    assert graph.strays("uid-4", None) == []
    dying = item("uid-4", finalizers=(FOREGROUND,), deleting=True)
    assert graph.put(dying) == {"uid-4", "x"}
    assert [found.uid for found in graph.blocking("uid-4")] == ["x"]
    assert graph.blocking("uid-5") == []
    assert Refs.read == 0


def test_a_reference_that_stops_blocking_wakes_the_owner_that_waits_for_it() -> None:
    graph = Graph()
    graph.put(item("o"))
    graph.put(item("x", (Owner("v1", "ConfigMap", "o", "o", True), Owner("v1", "ConfigMap", "p", "o", False))))
    graph.put(item("o", finalizers=(FOREGROUND,), deleting=True))
    assert [found.uid for found in graph.blocking("o")] == ["x"]
    assert "o" in graph.put(item("x", (Owner("v1", "ConfigMap", "o", "o", False),)))
    assert graph.blocking("o") == []


def change(kind: str, refs: tuple[Owner, ...] = ()) -> Change[Partial]:
    metadata = Metadata(name="x", namespace="default", uid="x", resource_version="1", owner_references=list(refs))
    return Change(kind, None, Partial(metadata=metadata))


def following(monkeypatch: pytest.MonkeyPatch) -> tuple[GarbageCollector, list[str]]:
    """Return a collector that follows ConfigMaps, and the owners to which it changes links."""
    made, linked, link = GarbageCollector(Context(Counting().client(), FakeClock())), list[str](), Graph._link
    made._monitors.monitored = {("", "configmaps"): None}
    monkeypatch.setattr(Graph, "_link", lambda self, owner, *rest: (linked.append(owner), link(self, owner, *rest))[1])
    return made, linked


async def test_an_object_with_thousands_of_owners_is_linked_in_parts_and_then_by_differences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, linked = following(monkeypatch)
    refs = owners(10 * PART, names=7)
    made._changed(MAPS, change("ADDED", refs))
    assert not linked, "the handler does not block the event loop"
    applying, seen = asyncio.create_task(made._large.run()), [0]
    while len(linked) < len(refs):
        await settle(1)
        seen.append(len(linked))
    assert max(after - before for before, after in itertools.pairwise(seen)) <= PART
    await settle(20 * PART)
    linked.clear()
    made._changed(MAPS, change("MODIFIED", (*refs[1:], Owner("v1", "ConfigMap", "o", "new", True))))
    await settle(20 * PART)
    assert sorted(linked) == ["new", "uid-0"]
    assert made.graph.dependents("new") and not made.graph.dependents("uid-0")
    assert [found.uid for found in made.graph.blocking("uid-2")] == ["x"]
    made._changed(MAPS, change("DELETED", refs))
    await settle(20 * PART)
    assert not made.graph.items and not made.graph._dependents
    applying.cancel()


async def test_changes_of_an_object_are_applied_in_their_order_large_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = following(monkeypatch)
    made._changed(MAPS, change("ADDED", owners(10 * PART, names=7)))
    applying = asyncio.create_task(made._large.run())
    await settle(3)
    made._changed(MAPS, change("MODIFIED", owners(3, names=3)))
    await settle(40 * PART)
    assert len(made.graph.items["x"].owners) == len(made.graph._dependents) == 3
    made._changed(MAPS, change("MODIFIED", owners(10 * PART, names=7)))
    made._changed(MAPS, change("DELETED"))
    await settle(40 * PART)
    assert not made.graph.items and not made.graph._dependents
    applying.cancel()


async def test_an_object_whose_resource_goes_while_it_is_linked_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = following(monkeypatch)
    made._changed(MAPS, change("ADDED", owners(10 * PART, names=7)))
    applying = asyncio.create_task(made._large.run())
    await settle(3)
    made._monitors.monitored.clear()
    await settle(80 * PART)
    assert not made.graph.items and not made.graph._dependents
    applying.cancel()
