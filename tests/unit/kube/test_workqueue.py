from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from kube.controller import Controller
from kube.delayed_keys import LEAST_REPLACED, SLICE
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


async def test_a_key_wakes_only_one_of_the_workers_that_wait() -> None:
    queue: WorkQueue[str] = WorkQueue()
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await settle()
    woken = [0]
    loop = asyncio.get_running_loop()
    call_soon = loop.call_soon

    def counted(*args: Any, **options: Any) -> asyncio.Handle:
        woken[0] += 1
        return call_soon(*args, **options)

    loop.call_soon = counted  # type: ignore[method-assign]
    try:
        queue.add("a")
    finally:
        del loop.call_soon
    await settle()
    assert woken == [1]
    assert [worker.done() for worker in workers] == [True, False, False]
    queue.add("b")
    queue.add("c")
    assert await asyncio.gather(*workers) == ["a", "b", "c"]


async def test_another_worker_takes_the_key_of_one_that_is_cancelled_as_it_wakes() -> None:
    queue: WorkQueue[str] = WorkQueue()
    cancelled, other = (asyncio.create_task(queue.get()) for _ in range(2))
    await settle()
    queue.add("a")
    cancelled.cancel()
    assert await asyncio.wait_for(other, 5) == "a"
    assert cancelled.cancelled()


async def test_all_waiting_workers_end_when_the_queue_is_shut_down() -> None:
    queue: WorkQueue[str] = WorkQueue()
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    await settle()
    workers[0].cancel()
    await settle()
    queue.shut_down()
    results = await asyncio.gather(*workers[1:], return_exceptions=True)
    assert [type(each) for each in results] == [ShutDown, ShutDown]


def owned() -> WorkQueue[str]:
    return WorkQueue(owner=lambda key: key.partition("/")[0])


async def test_owners_of_keys_have_turns_and_one_worker_each() -> None:
    queue = owned()
    for key in ("evil/1", "evil/2", "evil/3", "shop/1", "bank/1"):
        queue.add(key)
    assert [await queue.get() for _ in range(3)] == ["evil/1", "shop/1", "bank/1"]
    other = asyncio.create_task(queue.get())
    await settle()
    assert not other.done() and len(queue) == 2
    queue.add("shop/2")
    queue.done("shop/1")
    assert await asyncio.wait_for(other, 5) == "shop/2"
    queue.done("evil/1")
    queue.done("bank/1")
    queue.add("bank/2")
    assert [await queue.get(), await queue.get()] == ["evil/2", "bank/2"]


async def test_a_worker_that_waits_takes_the_next_key_of_an_owner_whose_worker_takes_anothers() -> None:
    queue = owned()
    queue.add("evil/1")
    queue.add("evil/2")
    assert await queue.get() == "evil/1"
    waiting = asyncio.create_task(queue.get())
    await settle()
    queue.done("evil/1")
    queue.add("evil/1")
    assert await asyncio.wait_for(waiting, 5) == "evil/2"
    queue.done("evil/2")
    assert await queue.get() == "evil/1"
    queue.add("evil/1")
    assert len(queue) == 0
    queue.done("evil/1")
    assert await queue.get() == "evil/1"


async def test_a_queue_with_owners_keeps_none_of_them() -> None:
    queue = owned()
    for number in range(10):
        queue.add(f"n{number}/a")
        queue.done(await queue.get())
    assert queue._round_robin is not None and not (
        queue._round_robin._ready or queue._round_robin._blocked or queue._round_robin._owners
    )


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


async def test_many_keys_that_are_due_at_once_come_in_slices_and_need_one_task() -> None:
    queue: WorkQueue[int] = WorkQueue()
    before = len(asyncio.all_tasks())
    for key in range(4 * SLICE):
        queue.add_after(key, 0.01)
    assert len(asyncio.all_tasks()) == before + 1
    seen = [0]
    while len(queue) < 4 * SLICE:
        await asyncio.sleep(0)
        seen.append(len(queue))
    assert max(after - before for before, after in itertools.pairwise(seen)) <= SLICE
    assert [await queue.get() for _ in range(4 * SLICE)] == list(range(4 * SLICE))
    await settle()
    assert len(asyncio.all_tasks()) == before


async def test_delayed_keys_come_at_their_own_moments_whatever_their_order() -> None:
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    for key, seconds in (("c", 30.0), ("a", 10.0), ("d", 1000.0), ("b", 20.0), ("at once", 0.0)):
        queue.add_after(key, seconds)
    came = []
    for moment in range(40):
        while len(queue):
            came.append((await queue.get(), moment))
        if moment == 15:
            queue.add_after("soon", 1)
        if moment == 16:
            queue.add_after("d", 20)
        await clock.advance(1)
    assert came == [("at once", 0), ("a", 10), ("soon", 16), ("b", 20), ("c", 30), ("d", 36)]


async def test_a_delay_that_is_added_while_due_keys_are_passed_on_counts() -> None:
    clock = FakeClock()
    queue: WorkQueue[int] = WorkQueue(clock)
    for key in range(2 * SLICE):
        queue.add_after(key, 5)
    queue.add_after(-1, 500)
    advancing = asyncio.create_task(clock.advance(5))
    while not len(queue):
        await asyncio.sleep(0)
    assert len(queue) == SLICE
    queue.add_after(-2, 3)
    await advancing
    assert len(queue) == 2 * SLICE
    await clock.advance(3)
    assert len(queue) == 2 * SLICE + 1
    await clock.advance(492)
    assert len(queue) == 2 * SLICE + 2


async def test_delays_that_sooner_ones_replace_are_not_kept() -> None:
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    for _ in range(1000):
        queue.add_after("a", 1000)
        queue.add_after("a", 0.05)
        await clock.advance(0.06)
        queue.done(await queue.get())
    assert len(queue._delayed._heap) <= LEAST_REPLACED + 2 and not len(queue._delayed)


async def test_a_queue_that_is_shut_down_gets_no_delayed_keys() -> None:
    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add_after("a", 5)
    queue.shut_down()
    queue.add_after("b", 5)
    await clock.advance(10)
    assert not len(queue)


async def test_a_delayed_key_that_cannot_be_added_keeps_back_no_other() -> None:
    def owner(key: str) -> str:
        if key == "broken":
            raise ValueError(key)
        return key

    clock = FakeClock()
    queue: WorkQueue[str] = WorkQueue(clock, owner=owner)
    queue.add_after("broken", 1)
    queue.add_after("a", 1)
    await clock.advance(2)
    assert await queue.get() == "a"


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
