"""Restarts of the controllers and the scheduler after failures, with a back-off that a quiet time resets."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from control import companions
from kube.clock import FakeClock, settle


async def test_work_that_fails_is_started_again_later_each_time_and_soon_after_it_ran_for_long() -> None:
    clock, starts = FakeClock(), list[float]()

    async def work() -> None:
        starts.append(clock.monotonic())
        if len(starts) == 12:
            await clock.sleep(3600)
        raise RuntimeError("a bug")

    task = asyncio.create_task(companions._supervised("controllers", work, clock))
    await settle()
    for _ in range(4000):
        await clock.advance(1)
        if len(starts) > 12:
            break
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    pauses = [after - before for before, after in itertools.pairwise(starts)]
    assert pauses[:11] == sorted(pauses[:11]) and pauses[0] == 0.5 and pauses[10] == companions.LAST_RESTART
    assert pauses[11] == pytest.approx(3600.5)
