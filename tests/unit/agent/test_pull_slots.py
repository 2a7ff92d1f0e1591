"""Order of pulls, and the effect of one that never ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.images.pull_slots import NAMESPACE, REGISTRY, SLOT_SECONDS, Origin, PullSlots
from tests.support.clock import FakeClock, settle


class World:
    """Pulls that hold their places until they are ended; `begun` has their names in order."""

    def __init__(self, limit: int) -> None:
        self.clock = FakeClock()
        self.places = PullSlots(limit, self.clock)
        self.begun: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def pull(self, name: str, namespace: str, registry: str = "good") -> None:
        self._ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._pull(name, Origin(namespace, registry)))
        await settle()

    async def _pull(self, name: str, origin: Origin) -> None:
        async with self.places.slot(origin):
            self.begun.append(name)
            await self._ends[name].wait()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await settle()

    async def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(1)
    yield world
    await world.close()


async def test_pulls_are_serial_and_the_namespaces_have_them_in_turn(world: World) -> None:
    for number in range(3):
        await world.pull(f"a{number}", "a")
    await world.pull("b", "b")
    assert world.begun == ["a0"]
    for ended in ("a0", "b", "a1", "a2"):
        await world.end(ended)
    assert world.begun == ["a0", "b", "a1", "a2"]


async def test_a_pull_that_does_not_end_lends_its_place_to_the_next_one(world: World) -> None:
    await world.pull("slow", "a", "bad")
    await world.pull("other", "b")
    await world.clock.advance(SLOT_SECONDS - 1)
    assert world.begun == ["slow"]
    await world.clock.advance(1)
    assert world.begun == ["slow", "other"]
    await world.pull("third", "b")
    await world.end("slow")  # its place went to the other one long ago
    assert world.begun == ["slow", "other"]
    await world.end("other")
    assert world.begun == ["slow", "other", "third"]


async def test_pulls_that_never_end_take_no_more_than_a_share_of_the_places(world: World) -> None:
    for number in range(40):
        await world.pull(f"bad-{number}", "a", f"registry-{number // 4}")
    await world.clock.advance(40 * SLOT_SECONDS)
    assert len(world.begun) == NAMESPACE
    assert max(sum(name in world.begun for name in [f"bad-{4 * of + i}" for i in range(4)]) for of in range(10)) == (
        REGISTRY
    )
    await world.pull("other", "b")
    assert world.begun[-1] == "other"
    await world.end(world.begun[0])
    await world.end("other")
    assert len(world.begun) == NAMESPACE + 2


async def test_another_registry_is_queried_while_one_does_not_answer_the_same_namespace(world: World) -> None:
    for number in range(4):
        await world.pull(f"bad-{number}", "a", "bad")
    await world.pull("good", "a", "good")
    await world.clock.advance(REGISTRY * SLOT_SECONDS)
    assert world.begun == ["bad-0", "bad-1", "good"]


async def test_pulls_that_are_given_up_leave_their_places() -> None:
    world = World(2)
    for name in "abcd":
        await world.pull(name, name)
    assert world.begun == ["a", "b"]
    world.tasks["c"].cancel()
    world.tasks["a"].cancel()
    await settle()
    assert world.begun == ["a", "b", "d"]
    await world.clock.advance(SLOT_SECONDS)
    world.tasks["b"].cancel()
    await world.end("d")
    assert (world.places._free, world.places._lent, world.places._waiting) == (2, [], [])
    await world.close()


async def test_without_a_limit_nobody_waits() -> None:
    world = World(0)
    for number in range(20):
        await world.pull(f"p{number}", "a")
    assert len(world.begun) == 20
    await world.close()


async def test_a_pull_that_is_cancelled_as_another_ends_loses_no_slot(world: World) -> None:
    """Its pod is deleted in the same iteration of the event loop."""
    await world.pull("first", "a")
    await world.pull("second", "b")
    world._ends["first"].set()  # the first task continues in the next iteration, after this cancellation
    world.tasks["second"].cancel()
    await settle()
    await world.pull("third", "c")
    assert world.begun == ["first", "third"] and world.tasks["first"].exception() is None
