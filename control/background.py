"""Tasks that the server cannot do without: if one fails, the server ends, and whoever supervises it starts it anew.

A server whose watch cache has died would go on answering with what it last saw; that is worse than no answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any


class BackgroundFailed(Exception):
    """A task that had to go on has ended."""


class Background:
    """The tasks of one server."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, work: Coroutine[Any, Any, Any], name: str, *, may_end: bool = False) -> None:
        """Run a task until `stop`; its failure, and unless `may_end` its end, fails the whole."""

        def ended(task: asyncio.Task[Any]) -> None:
            if task.cancelled() or self._failed.done():
                return
            error = task.exception()
            if error is not None or not may_end:
                failure = BackgroundFailed(f"{name} has ended: {error!r}")
                failure.__cause__ = error
                self._failed.set_exception(failure)

        task = asyncio.create_task(work, name=name)
        task.add_done_callback(ended)
        self._tasks.append(task)

    async def until(self, condition: Awaitable[Any]) -> None:
        """Wait for a condition; raises BackgroundFailed if a task fails first."""
        waiting = asyncio.ensure_future(condition)
        try:
            await asyncio.wait((waiting, self._failed), return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
            await waiting
        finally:
            waiting.cancel()

    async def stop(self) -> None:
        """Cancel all tasks, the last one first, and wait for their end."""
        if not self._failed.done():
            self._failed.cancel()
        for task in reversed(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
