"""Memory of work that was run step by step and has failed: nothing of it waits for the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from kube.errors import StatusError
from kube.fair_steps import FairSteps
from kube.step_limit import Limit, limited
from kube.step_shares import Shares


class Held:
    """Something that the work has in a variable."""


def cancel(task: asyncio.Task[None], awaited: asyncio.Future[None]) -> None:
    task.cancel()


def fail(task: asyncio.Task[None], awaited: asyncio.Future[None]) -> None:
    awaited.set_exception(StatusError(409, "Conflict", "no"))


def fail_in_a_group(task: asyncio.Task[None], awaited: asyncio.Future[None]) -> None:
    awaited.cancel()


@pytest.mark.parametrize("fair", [None, FairSteps(0.005), FairSteps(0.0)], ids=["alone", "fair", "waits"])
@pytest.mark.parametrize("end", [cancel, fail, fail_in_a_group])
async def test_failed_work_is_freed_without_a_garbage_collection(
    end: Callable[[asyncio.Task[None], asyncio.Future[None]], None],
    fair: FairSteps | None,
) -> None:
    held: list[weakref.ref[Held]] = []
    futures: list[asyncio.Future[None]] = []

    async def work() -> None:
        kept = Held()
        held.append(weakref.ref(kept))
        futures.append(asyncio.get_running_loop().create_future())
        await asyncio.gather(futures[0])

    async def outside() -> None:
        try:
            await limited(work(), Limit(Shares("test", 1.0, 0.5, 60.0, fair, every_step=True)))
        except (StatusError, asyncio.CancelledError):
            return

    gc.collect()
    gc.disable()
    try:
        task: asyncio.Task[Any] = asyncio.create_task(outside())
        await asyncio.sleep(0.01)
        end(task, futures[0])
        futures.clear()
        await task
        del task
        await asyncio.sleep(0.01)
        assert held[0]() is None
    finally:
        gc.enable()
