"""A controller at work on an API in memory, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from control.controllers.context import Context
from control.controllers.manager import Runnable
from tests.support.clock import FakeClock, settle
from tests.support.memory_api import MemoryAPI


@contextlib.asynccontextmanager
async def working(api: MemoryAPI, clock: FakeClock, make: Callable[[Context], Runnable]) -> AsyncIterator[None]:
    """Run the controller that `make` returns, with its informers and its events, once it knows what there is."""
    context = Context(api.client(), clock)
    controller = make(context)
    tasks = [asyncio.create_task(context.informers.run())]
    await context.informers.wait_synced()
    tasks.append(asyncio.create_task(controller.run()))
    tasks.append(asyncio.create_task(context.recorders.run()))
    await settle(50)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
