"""The virtual clock, and the detection that the event loop is idle."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from wherry.testing.errors import ClusterError
from wherry.testing.timing import idle
from wherry.testing.timing.clock import VirtualClock
from wherry.testing.timing.idle import IdleDetector

START = datetime(2026, 1, 1, tzinfo=UTC)


async def test_sleepers_wake_in_the_order_of_their_times_and_calls() -> None:
    clock, woken = VirtualClock(START), list[str]()

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    tasks = [asyncio.create_task(sleep(*each)) for each in (("late", 9.0), ("a", 5.0), ("b", 5.0), ("gone", 7.0))]
    await asyncio.sleep(0)
    tasks[3].cancel()
    for expected in (["a", "b"], ["a", "b", "late"]):
        following = clock.next_at()
        assert following is not None
        clock.move(following)
        await asyncio.sleep(0.001)
        assert woken == expected
    assert clock.next_at() is None and clock.now() == START + timedelta(seconds=9)
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("seconds", [0.1, 1 / 3, 1e-9, 50.0, 123456.7])
async def test_a_sleeper_never_wakes_too_early_however_times_are_rounded(seconds: float) -> None:
    clock = VirtualClock(START)
    clock.move(1e6 / 3)
    for _ in range(100):
        wall, monotonic = clock.now() + timedelta(seconds=seconds), clock.monotonic()
        task = asyncio.create_task(clock.sleep(seconds))
        await asyncio.sleep(0)
        clock.move(clock.next_at() or 0.0)
        await task
        assert clock.monotonic() - monotonic >= seconds
        assert clock.now() >= wall or seconds < 1e-6


async def test_deferrable_sleepers_wake_only_when_they_are_asked_to() -> None:
    clock = VirtualClock(START)
    task = asyncio.create_task(clock.sleep_deferrable(10))
    await asyncio.sleep(0)
    assert clock.next_at() is None
    clock.move(9)
    clock.wake_deferred()
    await asyncio.sleep(0)
    assert not task.done()
    clock.move(3600)
    await asyncio.sleep(0)
    assert not task.done()
    clock.wake_deferred()
    await asyncio.wait_for(task, 1)


async def test_a_loop_is_not_idle_while_a_thread_works_or_a_request_is_served() -> None:
    detector = IdleDetector(asyncio.get_running_loop())
    busy = [True]
    detector.busy = lambda: busy[0]
    with detector.installed():
        began = time.monotonic()
        thread = asyncio.create_task(asyncio.to_thread(time.sleep, 0.05))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.1, busy.clear)
        asyncio.get_running_loop().call_later(0.1, busy.append, False)
        await detector.wait()
        assert thread.done() and time.monotonic() - began >= 0.1
        await asyncio.gather(detector.wait(), detector.wait(0.01))


async def test_a_cluster_that_stays_busy_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "BUSY_SECONDS", 0.05)
    detector = IdleDetector(asyncio.get_running_loop())
    detector.busy = lambda: True
    with detector.installed(), pytest.raises(ClusterError, match="virtual time cannot pass"):
        await detector.wait()


async def test_the_loop_is_as_before_when_the_cluster_has_ended() -> None:
    loop = asyncio.get_running_loop()
    with IdleDetector(loop).installed():
        assert "run_in_executor" in vars(loop)
    assert "run_in_executor" not in vars(loop)
    assert await asyncio.to_thread(lambda: 1) == 1


def test_an_event_loop_without_a_selector_is_a_clear_error() -> None:
    class Other:
        pass

    with pytest.raises(ClusterError, match="virtual time needs an event loop of asyncio with a selector, not Other"):
        IdleDetector(Other())  # type: ignore[arg-type]
