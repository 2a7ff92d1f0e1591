"""Loops that reclaim resources: each is started again after an unexpected error, and the agent continues."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

from agent.assembly.reclaim import Reclaim
from agent.tasks import Tasks
from kube.loops import LAST_RETRY, Loops
from tests.support.clock import FakeClock


async def test_an_error_of_a_reclaiming_loop_ends_neither_it_nor_the_agent() -> None:
    clock, runs = FakeClock(), list[str]()

    def failing_once(name: str) -> Any:
        async def run(name: str = name) -> None:
            runs.append(name)
            if runs.count(name) == 1:
                raise KeyError(name)
            await asyncio.Event().wait()

        return SimpleNamespace(run=run, free=run, delete_names=partial(run, "names"))

    made = Reclaim(failing_once("usage"), *(failing_once(name) for name in ("images", "eviction", "housekeeping")))

    async def agent() -> None:
        async with asyncio.TaskGroup() as group:
            made.start(Tasks(group, Loops(clock)))

    running = asyncio.create_task(agent())
    await clock.advance(LAST_RETRY)
    assert not running.done()
    assert sorted(runs) == ["eviction"] * 2 + ["housekeeping"] * 2 + ["images"] * 2 + ["names"] * 2
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
