"""Distinguishes the cancellation of the running task from that of something it awaits.

A future or task that somebody else cancels raises CancelledError in whoever awaits it. A task that lets it pass ends as if it
had been cancelled, and a task group takes such an end for none: what should have gone on forever has stopped without a word.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class AwaitedCancelled(Exception):
    """Something that the task awaited was cancelled, and the task was not."""


def requested() -> bool:
    """Return whether the running task was cancelled; otherwise a CancelledError is that of something it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def as_error(work: Awaitable[T]) -> T:
    """Return what `work` returns. Raise AwaitedCancelled for a CancelledError that is not the running task's."""
    try:
        return await work
    except asyncio.CancelledError as error:
        if requested():
            raise
        raise AwaitedCancelled("something that was waited for was cancelled") from error


def start(group: asyncio.TaskGroup, work: Callable[[], Awaitable[T]], name: str) -> asyncio.Task[T]:
    """Start a task of a group that fails, and the group with it, where something that it awaits is cancelled."""

    async def run() -> T:
        return await as_error(work())

    return group.create_task(run(), name=name)
