from __future__ import annotations

import asyncio

import pytest

from kube.controller import Controller
from kube.errors import conflict
from kube.workqueue import ShutDown, WorkQueue
from tests.support.clock import FakeClock, settle


async def test_a_key_added_twice_is_worked_on_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_added_while_in_work_comes_back_only_when_it_is_done() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await queue.get() == "a"


async def test_of_two_delays_the_sooner_counts() -> None:
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add_after("a", 10)
    queue.add_after("a", 3)
    queue.add_after("a", 7)
    await clock.advance(2.9)
    assert len(queue) == 0
    await clock.advance(0.2)
    assert await queue.get() == "a"
    queue.done("a")
    await clock.advance(20)
    assert len(queue) == 0


async def test_failures_back_off_from_5_ms_doubling_to_1000_s_and_are_forgotten() -> None:
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    delays = []
    for _ in range(20):
        began = clock.monotonic()
        queue.add_rate_limited("a")
        while not len(queue):
            await clock.advance(0.001 if clock.monotonic() - began < 1 else 1)
        delays.append(clock.monotonic() - began)
        queue.done(await queue.get())
    assert delays[0] == pytest.approx(0.005, abs=0.0015)
    assert delays[3] == pytest.approx(0.040, abs=0.0015)
    assert delays[-1] == pytest.approx(1000, abs=1.5)
    queue.forget("a")
    assert queue.failures("a") == 0


async def test_shutting_down_ends_those_who_wait() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waiting = asyncio.ensure_future(queue.get())
    await settle()
    queue.shut_down()
    with pytest.raises(ShutDown):
        await waiting


async def test_a_controller_retries_failed_keys_and_requeues_keys_after_the_requested_delay() -> None:
    clock = FakeClock()
    seen: list[tuple[str, float]] = []

    async def reconcile(key: str) -> float | None:
        seen.append((key, clock.monotonic()))
        if len(seen) == 1:
            raise conflict("", "pods", "a", "changed")
        return 30.0 if len(seen) == 2 else None

    controller = Controller("test", reconcile, workers=1, clock=clock)
    running = asyncio.create_task(controller.run())
    controller.enqueue("default/a")
    await clock.advance(0.01)
    assert [key for key, _ in seen] == ["default/a", "default/a"]
    await clock.advance(40)
    assert len(seen) == 3
    assert seen[2][1] - seen[1][1] == pytest.approx(30)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
