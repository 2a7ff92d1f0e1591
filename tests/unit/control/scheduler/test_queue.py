"""The scheduling queue: order, back-off and events, in virtual time."""

from __future__ import annotations

import asyncio

from control.scheduler.podinfo import PodInfo
from control.scheduler.queue import STALE_SECONDS, SWEEP_SECONDS, SchedulingQueue
from tests.support.clock import FakeClock

from .clusters import pod

FIT = frozenset({"NodeResourcesFit"})
TAINTS = frozenset({"TaintToleration"})


def info(name: str, priority: int = 0) -> PodInfo:
    return PodInfo(pod(name, priority=priority))


async def test_the_highest_priority_comes_first_then_the_longest_waiting() -> None:
    clock = FakeClock()
    queue = SchedulingQueue(clock)
    for name, priority in (("low", 0), ("first", 5), ("second", 5), ("high", 9)):
        queue.add(info(name, priority))
        await clock.advance(1)
    assert [(await queue.get()).key for _ in range(4)] == [
        "default/high",
        "default/first",
        "default/second",
        "default/low",
    ]


async def test_an_unschedulable_pod_waits_for_an_event_that_its_plugins_care_for() -> None:
    clock = FakeClock()
    queue = SchedulingQueue(clock)
    queue.add(info("p"))
    queue.failed(await queue.get(), FIT)
    assert queue.lengths() == (0, 0, 1)
    queue.event(TAINTS)
    assert queue.lengths() == (0, 0, 1)
    await clock.advance(2)
    queue.event(FIT)
    assert queue.lengths() == (1, 0, 0)
    assert (await queue.get()).attempts == 2


async def test_an_event_during_the_try_is_not_lost() -> None:
    queue = SchedulingQueue(FakeClock())
    queue.add(info("p"))
    taken = await queue.get()
    queue.event(FIT)
    queue.failed(taken, FIT)
    assert queue.lengths()[2] == 0


async def test_a_pod_in_back_off_is_tried_early_only_when_nothing_else_waits() -> None:
    clock = FakeClock()
    queue = SchedulingQueue(clock)
    queue.add(info("p"))
    queue.failed(await queue.get(), FIT)
    queue.event(FIT)
    assert queue.lengths() == (0, 1, 0)
    queue.add(info("q"))
    assert (await queue.get()).key == "default/q"
    assert (await queue.get()).key == "default/p"


async def test_errors_wait_out_their_back_off_which_doubles_to_ten_seconds() -> None:
    clock = FakeClock()
    queue = SchedulingQueue(clock)
    running = asyncio.create_task(queue.run())
    queue.add(info("p"))
    for delay in (1, 2, 4, 8, 10, 10):
        queue.failed(await queue.get(), frozenset(), error=True)
        await clock.advance(delay - 0.01)
        assert queue.lengths() == (0, 1, 0)
        await clock.advance(0.02)
        assert queue.lengths() == (1, 0, 0)
    running.cancel()


async def test_a_pod_whose_preemption_failed_waits_out_its_back_off_and_no_longer() -> None:
    clock = FakeClock()
    queue = SchedulingQueue(clock)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(queue.run())
        queue.add(info("p"))
        taken = await queue.get()
        queue.failed(taken, FIT)
        queue.retry(taken)
        assert queue.lengths() == (0, 1, 0) and queue.empty() is False
        await clock.advance(0.5)
        assert queue.lengths() == (0, 1, 0)
        await clock.advance(0.6)
        assert queue.lengths() == (1, 0, 0)
        running.cancel()


async def test_the_retry_of_a_pod_that_is_gone_or_in_flight_again_changes_nothing() -> None:
    queue = SchedulingQueue(FakeClock())
    queue.add(info("p"))
    taken = await queue.get()
    queue.retry(taken)
    assert queue.lengths() == (0, 0, 0)
    queue.failed(taken, FIT)
    queue.remove("default/p")
    queue.retry(taken)
    assert queue.lengths() == (0, 0, 0)


async def test_what_waits_for_five_minutes_is_tried_anyway() -> None:
    clock = FakeClock()
    queue = SchedulingQueue(clock)
    running = asyncio.create_task(queue.run())
    queue.add(info("p"))
    queue.failed(await queue.get(), FIT)
    await clock.advance(STALE_SECONDS - 1)
    assert queue.lengths() == (0, 0, 1)
    await clock.advance(SWEEP_SECONDS + 1)
    assert queue.lengths() == (1, 0, 0)
    running.cancel()


async def test_a_deleted_pod_is_never_handed_out() -> None:
    queue = SchedulingQueue(FakeClock())
    queue.add(info("p"))
    queue.add(info("q"))
    queue.remove("default/p")
    assert (await queue.get()).key == "default/q"
    assert len(queue) == 0


async def test_get_waits_for_a_pod() -> None:
    queue = SchedulingQueue(FakeClock())
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.add(info("p"))
    assert (await waiting).key == "default/p"


async def test_a_changed_spec_frees_a_waiting_pod() -> None:
    clock = FakeClock()
    queue = SchedulingQueue(clock)
    queue.add(info("p"))
    queue.failed(await queue.get(), FIT)
    await clock.advance(2)
    queue.update(info("p", 3))
    assert (await queue.get()).info.priority == 3


async def test_a_change_of_a_pod_during_its_try_is_kept_and_frees_it() -> None:
    clock = FakeClock()
    queue = SchedulingQueue(clock)
    queue.add(info("p"))
    taken = await queue.get()
    queue.update(info("p", 3))
    await clock.advance(2)
    queue.failed(taken, FIT)
    assert (await queue.get()).info.priority == 3


async def test_a_deferred_pod_is_decided_about_as_it_is_by_then() -> None:
    queue = SchedulingQueue(FakeClock())
    queue.add(info("p"))
    taken = await queue.get()
    queue.update(info("p", 3))
    assert queue.refresh(taken) and taken.info.priority == 3
    assert not queue.refresh(taken)
    queue.failed(taken, FIT)
    assert queue.lengths() == (0, 0, 1), "the change was taken in: nothing else frees it"
