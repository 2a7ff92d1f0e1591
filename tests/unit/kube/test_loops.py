from __future__ import annotations

import asyncio
import itertools

import pytest

from agent.metrics.kubelet_metrics import KubeletMetrics
from kube import counters
from kube.loops import FAILURES, FIRST_RETRY, LAST_RETRY, RUNNING, TASKS, Loops
from tests.support.clock import FakeClock, settle


async def test_a_loop_that_fails_starts_again_with_growing_pauses_and_is_counted(caplog) -> None:
    clock, starts = FakeClock(), []
    loops = Loops(clock)

    async def work() -> None:
        starts.append(clock.monotonic())
        if len(starts) < 12:
            raise OSError("no space")
        await clock.sleep(10**6)

    task = asyncio.create_task(loops.run("a loop that fails", work))
    await settle()
    for _ in range(600):
        await clock.advance(1)
    pauses = [after - before for before, after in itertools.pairwise(starts)]
    assert len(starts) == 12
    assert pauses[0] == FIRST_RETRY and pauses == sorted(pauses) and pauses[-1] == LAST_RETRY
    assert (RUNNING.values["a loop that fails",], FAILURES.values["a loop that fails",]) == (1, 11)
    assert "OSError: no space" in caplog.text
    text = str(KubeletMetrics())
    assert 'wherry_loop_running{loop="a loop that fails"} 1\n' in text
    assert 'wherry_loop_failures_total{loop="a loop that fails"} 11\n' in text
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert RUNNING.values["a loop that fails",] == 0


async def test_a_loop_may_end_and_a_fatal_error_passes() -> None:
    loops = Loops(FakeClock(), fatal=(KeyError,))

    async def ends() -> None:
        pass

    async def refuses() -> None:
        raise KeyError("configuration")

    await loops.run("a loop that ends", ends)
    assert (RUNNING.values["a loop that ends",], FAILURES.values["a loop that ends",]) == (0, 0)
    with pytest.raises(KeyError):
        await loops.run("a loop that refuses", refuses)


async def test_a_loop_whose_call_was_cancelled_by_others_starts_again(caplog) -> None:
    clock, starts = FakeClock(), []

    async def work() -> None:
        awaited = asyncio.get_running_loop().create_future()
        starts.append(clock.monotonic())
        if len(starts) == 1:
            awaited.cancel()  # as a connection that somebody closes
        await awaited

    task = asyncio.create_task(Loops(clock).run("a cancelled loop", work))
    await clock.advance(10)
    assert len(starts) == 2
    assert (RUNNING.values["a cancelled loop",], FAILURES.values["a cancelled loop",]) == (1, 1)
    assert "a cancelled loop failed and starts again" in caplog.text
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()


async def test_tasks_are_counted_when_metrics_are_read() -> None:
    loops, ends = Loops(FakeClock()), asyncio.Event()

    async def wait() -> None:
        await ends.wait()

    def counted() -> int:
        list(counters.families())
        return int(TASKS.values[()])

    running = asyncio.create_task(loops.run("counted", wait))
    await asyncio.sleep(0)
    before, more = counted(), [asyncio.create_task(wait()) for _ in range(5)]
    assert counted() == before + 5
    ends.set()
    await asyncio.gather(running, *more)
    assert counted() == before - 1
