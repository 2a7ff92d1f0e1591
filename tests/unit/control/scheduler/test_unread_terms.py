"""Large affinity of pods that come bound is read in a thread, and counts from then on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from control.scheduler.podinfo import PodInfo
from kube.api import core_v1
from tests.support.cost import Lines

from .clusters import HOST, World, affinity, near, node, pod

TERMS = 2000
"""Terms of which a pod has more than 32 KiB."""


def guard(name: str, terms: int = TERMS, **labels: str) -> core_v1.Pod:
    """Return a pod that refuses pods with one of many labels on its node."""
    return pod(
        name, labels=labels, affinity=affinity([near({f"a{n}": "x"}, key=HOST) for n in range(terms)], anti=True)
    )


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    found = World(node("n0"), node("n1"))
    task = asyncio.create_task(found.cluster.existing_affinity.unread_terms.run())
    yield found
    task.cancel()


def incoming(number: int = 7) -> core_v1.Pod:
    return pod("incoming", labels={f"a{number}": "x"}, node_selector={HOST: "n0"})


async def test_terms_count_when_they_are_read_and_no_longer_than_the_pod_is_there(world: World) -> None:
    world.put(guard("guard"), "n0")
    assert not world.cluster.existing_affinity.required_anti
    await world.cluster.existing_affinity.unread_terms.settled()
    assert "existing pods anti-affinity rules" in world.refusal(incoming())
    world.cluster.remove_pod("default/guard")
    assert not world.cluster.existing_affinity.required_anti and world.place(incoming()) == "n0"


async def test_a_pod_that_leaves_before_its_terms_are_read_is_not_counted(world: World) -> None:
    world.put(guard("guard"), "n0")
    await asyncio.sleep(0)
    world.cluster.remove_pod("default/guard")
    await world.cluster.existing_affinity.unread_terms.settled()
    world.put(guard("other"), "n0")
    world.cluster.remove_node("n0")
    await world.cluster.existing_affinity.unread_terms.settled()
    assert not world.cluster.existing_affinity.required_anti


async def test_a_change_of_other_parts_takes_the_terms_that_were_read(world: World) -> None:
    world.put(guard("guard"), "n0")
    await world.cluster.existing_affinity.unread_terms.settled()
    world.put(guard("guard", app="a"), "n0")
    assert len(world.cluster.existing_affinity.required_anti) == 1, "at once"
    world.put(guard("guard", TERMS + 1, app="a"), "n0")
    assert not world.cluster.existing_affinity.required_anti
    await world.cluster.existing_affinity.unread_terms.settled()
    assert "existing pods anti-affinity rules" in world.refusal(incoming(TERMS))


async def test_the_terms_of_a_pod_that_was_placed_count_at_once(world: World) -> None:
    info = PodInfo(guard("guard"))
    info.prepare()
    world.cluster.assume(info, "n0")
    assert len(world.cluster.existing_affinity.required_anti) == 1


def test_a_bound_pod_is_a_step_that_does_not_grow_with_its_terms() -> None:
    counts = []
    for terms in (TERMS, 2 * TERMS):
        world, made = World(node("n0")), guard("guard", terms)
        with Lines() as lines:
            world.put(made, "n0")
        counts.append(lines.count)
    assert counts[1] - counts[0] < 100
