from __future__ import annotations

import asyncio

import pytest

from control.assembly.background import Background, BackgroundFailed
from tests.support.clock import FakeClock, settle


async def test_a_task_whose_call_was_cancelled_by_others_fails_the_whole() -> None:
    async def work() -> None:
        awaited = asyncio.get_running_loop().create_future()
        awaited.cancel()
        await awaited

    background = Background(FakeClock())
    background.start(work(), "the watch cache")
    with pytest.raises(BackgroundFailed, match="the watch cache has ended"):
        await background.until(asyncio.Event().wait())
    await background.stop()


async def test_tasks_that_are_stopped_fail_nothing() -> None:
    background = Background(FakeClock())
    background.start(asyncio.Event().wait(), "the watch cache")
    await settle()
    await background.stop()
