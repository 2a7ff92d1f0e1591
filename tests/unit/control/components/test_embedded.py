"""Restarts of the controllers and the scheduler after failures of whatever kind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from control.components import embedded
from control.config import ControlConfig
from kube.client import Client
from kube.loops import FAILURES, RUNNING
from tests.support.clock import FakeClock


@pytest.mark.parametrize("cancelled", [False, True], ids=["an error", "a call that others cancelled"])
async def test_a_scheduler_that_ends_by_itself_is_started_again_and_counted(
    monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    clock, starts = FakeClock(), list[float]()

    async def hold(client: Client, name: str, identity: str, lead: Callable[[], Awaitable[None]], clock: Any) -> None:
        starts.append(clock.monotonic())
        if len(starts) > 2:
            await asyncio.Event().wait()
        if not cancelled:
            raise RuntimeError("a bug")
        awaited = asyncio.get_running_loop().create_future()
        awaited.cancel()
        await awaited

    monkeypatch.setattr(embedded, "hold", hold)
    config = ControlConfig(*[Path("unused")] * 5, enable_controllers=False, enable_scheduler=True)
    before = FAILURES.values.get(("scheduler",), 0)
    tasks = [
        asyncio.create_task(work, name=name)
        for name, work in embedded.embedded_components(config, lambda user, agent: cast(Client, None), clock)
    ]
    await clock.advance(10)
    assert starts == [0.0, 1.0, 3.0]
    assert RUNNING.values["scheduler",] == 1
    assert FAILURES.values["scheduler",] - before == 2
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
