"""The loop around `reconcile(key)`: take a key, bring the world to what it says, and back off where that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kube import cancellation
from kube.clock import SYSTEM, Clock
from kube.errors import StatusError
from kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

Reconcile = Callable[[str], Awaitable[float | None]]
"""Reconcile one key; a number returned is the seconds after which to look again."""


class Controller:
    """Workers that reconcile keys. Feed it with `enqueue` from informer handlers."""

    def __init__(self, name: str, reconcile: Reconcile, *, workers: int = 2, clock: Clock = SYSTEM) -> None:
        self.name = name
        self.queue: WorkQueue[str] = WorkQueue(clock, name)
        self._reconcile, self._workers = reconcile, workers

    def enqueue(self, key: str) -> None:
        self.queue.add(key)

    def enqueue_after(self, key: str, seconds: float) -> None:
        self.queue.add_after(key, seconds)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._workers):
                    group.create_task(self._work(), name=f"{self.name} worker {number}")
        finally:
            self.queue.shut_down()

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            try:
                again = await self._reconcile(key)
            except StatusError as error:
                # Conflicts and absences mean that our copy was behind; the next iteration sees the change.
                level = logging.DEBUG if error.conflict or error.not_found else logging.WARNING
                log.log(level, "%s: %s: %s", self.name, key, error)
                self.queue.add_rate_limited(key)
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and cancellation.requested():
                    raise
                log.exception("%s: %s: reconciling failed", self.name, key)
                self.queue.add_rate_limited(key)
            else:
                self.queue.forget(key)
                if again is not None:
                    self.queue.add_after(key, again)
            finally:
                self.queue.done(key)
            # Neither what was reconciled nor the queue has waited for anything: thousands of keys would be one stretch of work.
            await asyncio.sleep(0)
