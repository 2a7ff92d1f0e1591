"""The scheduler's metrics: pods that come into queues, and attempts that end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from control.scheduler import metrics
from control.scheduler.podinfo import PodInfo
from control.scheduler.queue import STALE_SECONDS, SWEEP_SECONDS, SchedulingQueue
from control.scheduler.queued_pod import QueuedPod
from tests.support.clock import FakeClock
from tests.support.hollow import eventually

from .clusters import pod

FIT = frozenset({"NodeResourcesFit"})


@pytest.fixture
def more() -> Callable[[str, str], float]:
    """Return a function that counts the pods that came into a queue by an event since the test began."""
    before = dict(metrics.INCOMING.values)
    return lambda queue, event: metrics.INCOMING.values.get((queue, event), 0) - before.get((queue, event), 0)


async def waiting(clock: FakeClock) -> SchedulingQueue:
    """Return a queue with an unschedulable pod."""
    queue = SchedulingQueue(clock)
    queue.add(PodInfo(pod("p")))
    queue.failed(await queue.get(), FIT)
    return queue


async def test_pods_are_counted_by_the_event_that_queues_them(more: Callable[[str, str], float]) -> None:
    clock = FakeClock()
    queue = await waiting(clock)
    assert more("active", metrics.POD_ADDED) == 1 and more("unschedulable", metrics.FAILURE) == 1
    queue.event(FIT, cause="NodeAdd")
    assert more("backoff", "NodeAdd") == 1
    queue.failed(await queue.get(), FIT, error=True)
    assert more("active", metrics.BACKOFF_POPPED) == 1 and more("backoff", metrics.FAILURE) == 1


async def test_a_pod_that_waits_for_long_is_counted_by_its_timeout(more: Callable[[str, str], float]) -> None:
    clock = FakeClock()
    queue = await waiting(clock)
    task = asyncio.create_task(queue.run())
    try:
        await clock.advance(STALE_SECONDS + SWEEP_SECONDS)
        await eventually(lambda: more("active", metrics.TIMEOUT) == 1)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_plugins_that_reject_waiting_pods_are_listed() -> None:
    queue = await waiting(FakeClock())
    assert list(queue.rejections()) == [("NodeResourcesFit", "default-scheduler")]


@pytest.mark.parametrize(("attempts", "label"), [(1, "1"), (14, "14"), (15, "15+"), (400, "15+")])
def test_a_scheduled_pod_counts_by_its_attempts(attempts: int, label: str) -> None:
    def state() -> tuple[float, float, float]:
        spread = metrics.SLI_SECONDS.spreads.get((label,))
        total = metrics.ATTEMPT_SECONDS.spreads.get(("scheduled", "mine"))
        counted = metrics.ATTEMPTS.values.get(("scheduled", "mine"), 0)
        return counted, spread.sum if spread else 0, total.sum if total else 0

    before = state()
    queued = QueuedPod(PodInfo(pod("p")), added=10.0, attempts=attempts, last_try=16.0)
    metrics.attempted("scheduled", "mine", queued, 18.0)
    after = state()
    assert [round(new - old, 6) for new, old in zip(after, before, strict=True)] == [1, 8, 2]


def test_a_failed_attempt_is_no_scheduled_pod() -> None:
    before = sum(metrics.POD_ATTEMPTS.spreads[()].counts) if metrics.POD_ATTEMPTS.spreads else 0
    metrics.attempted("error", "mine", QueuedPod(PodInfo(pod("p")), added=0.0, attempts=1), 1.0)
    after = sum(metrics.POD_ATTEMPTS.spreads[()].counts) if metrics.POD_ATTEMPTS.spreads else 0
    assert after == before
