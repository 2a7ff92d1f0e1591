"""Requests about many objects, a few at a time.

How many pods or dependents an object has is the user's choice. A task for each would stand on the event loop for seconds, take
several times the memory of the objects, and be refused (429) by the server that it floods; then all is begun again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, TypeVar

from control.controllers.step_counter import REQUEST_STEPS, StepCounter
from kube import step_limit
from kube.errors import StatusError
from kube.step_limit import StepTooLong

T = TypeVar("T")
CONCURRENCY = 16
"""Requests for one object that are under way."""


async def for_each(items: Collection[T], act: Callable[[T], Awaitable[object]]) -> StatusError | None:
    """Call `act` for all items, CONCURRENCY at a time, whatever becomes of others; return the first StatusError.

    Another exception is raised when all are done. The tasks have the caller's limit of steps; a step that exceeds it ends all.
    """
    left, counter = iter(items), StepCounter()
    failures: list[Exception] = []

    async def work() -> None:
        for item in left:
            await counter.count(REQUEST_STEPS)
            try:
                await act(item)
            except Exception as error:
                failures.append(error)

    async def limited(task: Coroutine[Any, Any, None]) -> None:
        try:
            await task
        except StepTooLong as error:
            failures.append(error)
            for _ in left:  # what else is there takes as long
                pass

    tasks = [step_limit.inherited(work()) for _ in range(min(CONCURRENCY, len(items)))]
    await asyncio.gather(*map(limited, tasks))
    for failure in failures:
        if not isinstance(failure, StatusError):
            raise failure
    return next((failure for failure in failures if isinstance(failure, StatusError)), None)
