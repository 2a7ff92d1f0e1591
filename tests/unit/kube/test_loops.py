from __future__ import annotations

import asyncio
import itertools

import pytest

from kube.clock import FakeClock, settle
from kube.loops import LAST_RETRY, Loops


async def test_a_loop_that_fails_starts_again_with_growing_pauses_and_is_counted() -> None:
    clock, starts = FakeClock(), []
    loops = Loops(clock)

    async def work() -> None:
        starts.append(clock.monotonic())
        if len(starts) < 12:
            raise OSError("no space")
        await clock.sleep(10**6)

    task = asyncio.create_task(loops.run("housekeeping", work))
    await settle()
    for _ in range(600):
        await clock.advance(1)
    pauses = [after - before for before, after in itertools.pairwise(starts)]
    assert len(starts) == 12
    assert pauses == sorted(pauses) and max(pauses) <= LAST_RETRY + 1
    loop = loops.table["housekeeping"]
    assert (loop.running, loop.failures, loop.error) == (True, 11, "OSError: no space")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not loop.running


async def test_a_loop_may_end_and_a_fatal_error_passes() -> None:
    loops = Loops(FakeClock(), fatal=(KeyError,))

    async def ends() -> None:
        pass

    async def refuses() -> None:
        raise KeyError("configuration")

    await loops.run("ends", ends)
    assert not loops.table["ends"].running and loops.table["ends"].failures == 0
    with pytest.raises(KeyError):
        await loops.run("refuses", refuses)
