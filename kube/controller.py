"""The loop around `reconcile(key)`: takes keys from the queue, reconciles them, and retries failures with a back-off."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from kube import cancellation
from kube.clock import SYSTEM, Clock
from kube.errors import StatusError
from kube.fair_steps import FairSteps
from kube.step_limit import Limit, OwnerStopped, StepTooLong, limited
from kube.step_shares import Shares
from kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

Reconcile = Callable[[str], Coroutine[Any, Any, float | None]]
"""Reconcile one key; a number returned is the seconds after which to look again."""

STEP_SECONDS = 3.0
"""CPU time that a step of reconciling may take; with twenty thousand pods one takes some tenths of a second."""
SHARE, PAUSE = 0.5, 60.0
"""Part of all time that long steps for one namespace may take, of all controllers together, and seconds until the next one
after a step was stopped."""
ITERATION_SECONDS, CONTINUED = 0.05, 4
"""CPU time of the steps of all keys in one iteration of the event loop, before the next one; of those that wait, steps that
continue in an iteration. Only long ones are charged: short ones of one namespace may have all time that nobody else needs."""
_shares = Shares("reconciling", STEP_SECONDS, SHARE, PAUSE, FairSteps(ITERATION_SECONDS, CONTINUED))


def _namespace(key: str) -> str:
    """Return the namespace of a key, or the name of what has none."""
    return key.partition("/")[0]


class Controller:
    """Workers that reconcile keys. Feed it with `enqueue` from informer handlers."""

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        workers: int = 2,
        queue: str = "",
        clock: Clock = SYSTEM,
        owner: Callable[[str], str] = _namespace,
        each: int = 0,
    ) -> None:
        """`queue` is the queue's name in metrics, where upstream's is not the controller's.

        `owner` returns whose long steps those of a key are: those of all its keys have one share of time.
        With `each`, keys are taken round robin over owners, of which each has so many workers at most: with more workers than
        that, one owner with many or slow keys delays no other.
        """
        self.name, self._owner = name, owner
        self.queue: WorkQueue[str] = WorkQueue(clock, queue or name, owner if each else None, each)
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
                    cancellation.start(group, self._work, f"{self.name} worker {number}")
        finally:
            self.queue.shut_down()

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            owner = self._owner(key)
            if (delay := _shares.delay(owner)) > 0:
                self.queue.done(key)
                self.queue.add_after(key, delay)
                await asyncio.sleep(0)
                continue
            try:
                again = await limited(self._reconcile(key), Limit(_shares, owner, pauses=True))
            except StatusError as error:
                # Conflicts and absences mean that our copy was behind; the next iteration sees the change.
                level = logging.DEBUG if error.replaced or error.not_found else logging.WARNING
                log.log(level, "%s: %s: %s", self.name, key, error)
                self.queue.add_rate_limited(key)
            except OwnerStopped:
                self.queue.add_after(key, _shares.delay(owner))
            except StepTooLong as error:
                log.error(
                    "%s: %s: %s; all objects in %s are delayed for %.0f seconds", self.name, key, error, owner, PAUSE
                )
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
            if self.queue:
                # Perhaps neither what was reconciled nor the queue waits for anything: thousands of keys would be one step.
                await asyncio.sleep(0)
