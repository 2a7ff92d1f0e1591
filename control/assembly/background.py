"""The server's tasks. Those it cannot do without end it when they fail; the others start again by themselves.

A server whose watch cache has died would continue answering with what it last saw; that is worse than no answer: whoever
supervises it starts it again. Compaction, audit webhooks, looking at files and the like begin again after a pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from kube.cancellation import AwaitedCancelled
from kube.clock import Clock
from kube.loops import Loops


class BackgroundFailed(Exception):
    """A task that had to continue has ended."""


class Background:
    """The tasks of one server."""

    def __init__(self, clock: Clock) -> None:
        self._loops = Loops(clock)
        self._tasks: list[asyncio.Task[Any]] = []
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, work: Coroutine[Any, Any, Any], name: str, *, may_end: bool = False) -> None:
        """Run a task until `stop`; its failure, and unless `may_end` its end, fails the whole."""

        def ended(task: asyncio.Task[Any]) -> None:
            if self._failed.done():
                return
            # Before `stop`, a cancelled task is one whose awaited was cancelled by others.
            error = AwaitedCancelled() if task.cancelled() else task.exception()
            if error is not None or not may_end:
                failure = BackgroundFailed(f"{name} has ended: {error!r}")
                failure.__cause__ = error
                self._failed.set_exception(failure)

        task = asyncio.create_task(work, name=name)
        task.add_done_callback(ended)
        self._tasks.append(task)

    def keep(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Run work until `stop`, or until it returns; where it fails it starts again after a pause."""
        self._tasks.append(asyncio.create_task(self._loops.run(name, work), name=name))

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
