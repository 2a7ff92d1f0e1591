"""Requests about many objects, a few at a time.

How many pods or dependents an object has is the user's choice. A task for each would stand on the event loop for seconds, take
several times the memory of the objects, and be refused (429) by the server that it floods; then all is begun anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from control.controllers.turns import REQUEST_STEPS, Turn
from kube.errors import StatusError

T = TypeVar("T")
AT_ONCE = 16
"""Requests for one object that are under way."""


async def for_each(items: Collection[T], act: Callable[[T], Awaitable[object]]) -> StatusError | None:
    """Call `act` for all items, AT_ONCE at a time, whatever becomes of others; return the first StatusError.

    Another exception is raised when all are done.
    """
    left, turn = iter(items), Turn()
    failures: list[Exception] = []

    async def work() -> None:
        for item in left:
            await turn.took(REQUEST_STEPS)
            try:
                await act(item)
            except Exception as error:
                failures.append(error)

    await asyncio.gather(*(work() for _ in range(min(AT_ONCE, len(items)))))
    for failure in failures:
        if not isinstance(failure, StatusError):
            raise failure
    return next((failure for failure in failures if isinstance(failure, StatusError)), None)
