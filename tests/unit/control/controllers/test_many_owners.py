"""The garbage collector and objects with thousands of owners: look-ups, turns, and what other objects pay for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from control.controllers.context import Context
from control.controllers.discovery import Served
from control.controllers.garbage import GarbageCollector
from control.controllers.garbage.collector import REDISCOVER_SECONDS
from control.controllers.garbage.graph import FOREGROUND, Graph, Item
from control.controllers.garbage.metadata import Owner
from control.controllers.turns import REQUEST_STEPS, STEPS_A_TURN
from kube.clock import FakeClock, settle
from tests.support.product_world import World

MAPS = Served("", "v1", "configmaps", "ConfigMap", True, frozenset())


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
    made._kinds = {("", "ConfigMap"): MAPS}
    made.graph.put(dependent)
    return made


@pytest.mark.parametrize(("count", "names"), [(3000, 3000), (3000, 7)])
async def test_absent_owners_are_asked_for_once_by_name_and_in_turns(count: int, names: int) -> None:
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
        <= STEPS_A_TURN // REQUEST_STEPS + 1
    )


async def test_absent_owners_are_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    made = collector(Counting(), item("x", owners(20, names=20)))
    await made.reconcile("x")
    assert len(made._absent) == 20

    async def monitored(group: asyncio.TaskGroup) -> dict[str, Any]:
        return {}

    monkeypatch.setattr(made, "_monitor_all", monitored)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(made._follow_discovery(group))
        await settle(3)
        await made._clock.advance(REDISCOVER_SECONDS)  # type: ignore[attr-defined]
        await settle(3)
        following.cancel()
    assert not made._absent


async def test_owners_that_nobody_has_to_be_asked_for_are_looked_at_in_turns() -> None:
    api = Counting()
    made = collector(api, item("x", owners(4 * STEPS_A_TURN, names=9, kind="Unknown")))
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
