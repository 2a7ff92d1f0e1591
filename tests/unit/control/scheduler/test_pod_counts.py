"""Indexes of what is asked of all pods: each is a cost of every pod that comes or goes."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from collections.abc import Callable
from typing import TypeVar

import pytest

from control.scheduler import pod_counts, pod_index, preemption
from control.scheduler.budgets import Budgets
from control.scheduler.framework import Unschedulable
from control.scheduler.node_counts import NodeCounts
from control.scheduler.pod_counts import HELD, MOST_BYTES, MOST_INDEXES, PodIndexes
from control.scheduler.pod_index import COMPARED_AT_ONCE, COUNTED_AT_ONCE, LARGE, SIMPLE
from control.scheduler.pod_selection import PodSelection
from control.scheduler.podinfo import PodInfo
from control.scheduler.term_sets import AffinityTerm, TermSet, term_set
from control.scheduler.unfinished import Unfinished
from kube.selectors import LabelSelector, Requirement, parse_labels
from tests.support.step_lines import longest_step

from .clusters import HOST, World, node, pod, spread

T = TypeVar("T")


async def decided(decide: Callable[[], T], rounds: int = 100) -> T:
    """Return what is decided in the end."""
    for _ in range(rounds):
        try:
            return decide()
        except Unfinished as more:
            await more.go_on()
    raise AssertionError("nothing is decided")


@pytest.mark.parametrize(("terms", "kept"), [(1, MOST_INDEXES), (SIMPLE, MOST_INDEXES), (5000, MOST_INDEXES // LARGE)])
def test_fewer_indexes_are_kept_whose_selectors_are_large(terms: int, kept: int) -> None:
    indexes = PodIndexes(lambda namespace: {}, set())
    selector = parse_labels(",".join(f"k{number}" for number in range(terms)))
    for number in range(2 * kept):
        indexes.matching(PodSelection(f"n{number}", selector), [])
    assert len(indexes._indexes) == kept


def test_the_bytes_of_all_indexes_are_limited() -> None:
    indexes = PodIndexes(lambda namespace: {}, set())
    values = frozenset(f"{number}{'x' * 60}" for number in range(20_000))
    for number in range(60):
        indexes.matching(PodSelection(f"n{number}", LabelSelector((Requirement("app", "in", values),))), [])
    assert 1 < len(indexes._indexes) <= MOST_BYTES // (20_000 * 60)
    for number in range(30):
        term = AffinityTerm(values, None, LabelSelector((Requirement(f"{number}", "in", values),)), "zone")
        indexes.weighed(TermSet(((term, 1),)), [])
        indexes.all_matching(TermSet(((term, 1),)), [])
    assert 1 < len(indexes._indexes) <= MOST_BYTES // (2 * 20_000 * 60)
    indexes.namespaces_changed()
    indexes.forget()
    assert indexes._size == 0


def test_an_index_that_is_larger_than_the_limit_is_kept_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_counts, "MOST_BYTES", 1000)
    indexes, small = PodIndexes(lambda namespace: {}, set()), parse_labels("a,b")
    for name in ("one", "two"):
        indexes.matching(PodSelection(name, small), [])
    large = PodSelection("large", parse_labels(",".join(f"k{number}" for number in range(100))))
    found = indexes.matching(large, [])
    assert list(indexes._indexes) == [large] and indexes.matching(large, []) is found


def large_world(pods: int) -> tuple[World, dict[str, str]]:
    world, labels = World(node("n0"), node("n1")), {f"k{number}": "" for number in range(COMPARED_AT_ONCE + 1)}
    for number in range(pods):
        world.put(pod(f"p{number}", labels=dict(labels) | {"of": str(number)}), f"n{number % 2}")
    return world, labels


async def test_an_index_of_a_large_selector_keeps_nothing_of_pods_that_are_gone() -> None:
    world, labels = large_world(4)
    selection, incoming = PodSelection("default", parse_labels(",".join(labels))), PodInfo(pod("incoming"))
    with pytest.raises(Unfinished) as unfinished:
        world.cluster.count(selection, incoming)
    await unfinished.value.go_on()
    gone = [weakref.ref(world.cluster.pod(f"default/p{number}")) for number in range(4)]
    assert world.cluster.count(selection, incoming).per_node == {"n0": 2, "n1": 2}
    for number in range(4):
        world.cluster.remove_pod(f"default/p{number}")
    gc.collect()
    assert [ref() for ref in gone] == [None] * 4
    assert world.cluster.count(selection, incoming).per_node == {}


async def test_pods_that_change_while_an_index_is_created_are_counted_as_they_are() -> None:
    world, labels = large_world(8)
    selection, incoming = PodSelection("default", parse_labels(",".join(labels))), PodInfo(pod("incoming"))
    with pytest.raises(Unfinished) as unfinished:
        world.cluster.count(selection, incoming)
    building = asyncio.ensure_future(unfinished.value.go_on())
    await asyncio.sleep(0)
    world.put(pod("p0", labels={}), "n0")
    world.put(pod("late", labels=dict(labels)), "n1")
    world.cluster.remove_pod("default/p1")
    world.cluster.set_node(node("n2"))
    world.put(pod("p2", labels=dict(labels)), "n2")
    world.cluster.remove_node("n0")
    await building
    assert world.cluster.count(selection, incoming).per_node == {"n1": 4, "n2": 1}


def indexes_of(world: World, incoming: PodInfo | None) -> list[NodeCounts]:
    """Read an index of each kind."""
    cluster, term = world.cluster, AffinityTerm(frozenset({"default"}), None, parse_labels("app=a"), HOST)
    by_labels = AffinityTerm(frozenset(), parse_labels("team=a"), parse_labels("app=a"), HOST)
    few, many = term_set([(term, 1)]), term_set([(each, 2) for each in (term, by_labels) * 3])
    assert few is not None and many is not None
    found = [cluster.count(PodSelection("default", parse_labels(text)), incoming) for text in ("app=a", "app!=a")]
    return [
        *found,
        *(cluster.count_all(each, incoming) for each in (few, many)),
        *cluster.weigh(many, incoming).values(),
    ]


@pytest.mark.parametrize("seed", range(10))
async def test_indexes_created_in_slices_are_like_those_created_at_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, namespaces = random.Random(seed), {"default": {"team": "a"}, "other": {}}
    monkeypatch.setattr(pod_index, "COUNTED_AT_ONCE", 0)
    monkeypatch.setattr("control.event_loop.pacing.SLICE_SECONDS", 0)
    world, incoming = World(*(node(f"n{n}") for n in range(4)), namespaces=namespaces), PodInfo(pod("incoming"))

    def change() -> None:
        name, kind = f"p{draw.randrange(20)}", draw.randrange(8)
        if kind == 0:
            world.cluster.remove_pod(f"default/{name}")
        elif kind == 1:
            namespaces["other"] = {"team": draw.choice("ab")}
            world.cluster.namespaces_changed()
        elif kind == 2:
            info = PodInfo(pod(name, labels={"app": "a"}, namespace="other"))
            world.cluster.remove_pod(info.key)
            world.cluster.assume(info, "n1")
            world.cluster.forget(info.key, info.uid)
        else:
            labels = {"app": draw.choice("ab")}
            world.put(pod(name, labels=labels, namespace=draw.choice(["default", "other"])), f"n{draw.randrange(4)}")

    async def changes() -> None:
        for _ in range(60):
            change()
            await asyncio.sleep(0)

    for _ in range(40):
        change()
    changing = asyncio.ensure_future(changes())
    await decided(lambda: indexes_of(world, incoming))
    await changing
    found = [counts.per_node for counts in await decided(lambda: indexes_of(world, incoming))]
    world.cluster._indexes.forget()
    assert found == [counts.per_node for counts in indexes_of(world, None)]


async def test_a_new_index_over_many_pods_is_created_in_slices() -> None:
    async def longest(pods: int) -> int:
        world, incoming = World(node("n0"), node("n1")), PodInfo(pod("incoming"))
        for number in range(pods):
            world.put(pod(f"p{number}", labels={"app": "a"}), f"n{number % 2}")
        with pytest.raises(Unfinished) as unfinished:
            world.cluster.count(PodSelection("default", parse_labels("app=a")), incoming)
        return await longest_step(unfinished.value.go_on())  # type: ignore[arg-type]

    few, many = [await longest(pods) for pods in (2 * COUNTED_AT_ONCE, 4 * COUNTED_AT_ONCE)]
    assert many - few < 5 * 2 * COUNTED_AT_ONCE, "pods are listed at once, but not compared"


def spread_widely(name: str, keys: list[str], terms: int) -> PodInfo:
    constraints = [
        spread(key, labels={f"{name}{key}{n}": "" for n in range(terms)}, skew=5, when=when)
        for key in keys
        for when in ("DoNotSchedule", "ScheduleAnyway")
    ]
    return PodInfo(pod(name, topology_spread_constraints=constraints))


async def test_pods_with_more_large_spread_constraints_than_indexes_are_kept_are_placed() -> None:
    keys = [HOST, *(f"key{number}" for number in range(MOST_INDEXES // LARGE))]
    world = World(*(node(f"n{n}", labels=dict.fromkeys(keys[1:], "x")) for n in range(2)))
    several = [spread_widely(name, keys, COMPARED_AT_ONCE + 1) for name in ("one", "two")]
    for number in range(3):
        world.put(pod(f"p{number}", labels={"app": "a"}), "n0")
    placed = await asyncio.gather(
        *(decided(lambda incoming=incoming: world.algorithm.place(incoming)) for incoming in several)
    )
    assert len(placed) == 2
    kept = world.cluster._indexes
    assert len(kept._indexes) == MOST_INDEXES // LARGE
    for incoming in several:
        assert len(incoming.cycle_state[HELD]) <= 2 * len(keys)
        incoming.cycle_state.clear()
    gc.collect()
    assert not kept._evicted


async def test_a_victim_search_with_more_large_terms_than_indexes_are_kept_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pod_counts, "MOST_INDEXES", LARGE)
    keys = [HOST, "a", "b"]
    world = World(*(node(f"n{n}", pods="1", labels={"a": "x", "b": "x"}) for n in range(2)))
    world.cluster._indexes.forget()
    for number in range(2):
        world.put(pod(f"p{number}", labels={"app": "a"}), f"n{number}")
    incoming = spread_widely("incoming", keys, COMPARED_AT_ONCE + 1)
    incoming.priority = 10
    with pytest.raises(Unschedulable) as refusal:
        await decided(lambda: world.algorithm.place(incoming))
    found = await decided(
        lambda: preemption.find(incoming, refusal.value.diagnosis, world.algorithm, world.cluster, Budgets())
    )
    assert found is not None
