"""The checks of extension servers: one task for each, so that one that is silent delays no other and no registration.

A check that is requested while one is under way follows it. Upstream: the work queue of kube-aggregator's availability
controllers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from control.aggregation.remote import Remote
from kube.clock import Clock

log = logging.getLogger(__name__)
RETRY_SECONDS = 1.0
"""Seconds until a check whose result could not be written is repeated."""
Place = tuple[str, str]


class _Worker(msgspec.Struct):
    remote: Remote
    wanted: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Checks:
    """The workers of all extension servers, by group and version."""

    def __init__(self, check: Callable[[Remote], Awaitable[None]], clock: Clock) -> None:
        self._check, self._clock = check, clock
        self._workers: dict[Place, _Worker] = {}

    def ask(self, remotes: Mapping[Place, Remote]) -> None:
        """Have each remote checked, now or once its check under way is over; end the checks of those that are gone."""
        for place, worker in list(self._workers.items()):
            if remotes.get(place) is not worker.remote:
                self._end(place)
        for place, remote in remotes.items():
            worker = self._workers.get(place) or self._begin(place, remote)
            worker.wanted.set()

    def _begin(self, place: Place, remote: Remote) -> _Worker:
        worker = self._workers[place] = _Worker(remote)
        worker.task = asyncio.create_task(self._work(worker), name=f"check of {place[1]}.{place[0]}")
        return worker

    def _end(self, place: Place) -> None:
        task = self._workers.pop(place).task
        if task is not None:
            task.cancel()

    async def _work(self, worker: _Worker) -> None:
        while True:
            await worker.wanted.wait()
            worker.wanted.clear()
            try:
                await self._check(worker.remote)
            except Exception as error:
                log.warning("%s cannot be checked: %r", worker.remote.host, error)
                await self._clock.sleep(RETRY_SECONDS)
                worker.wanted.set()

    async def close(self) -> None:
        """End all checks."""
        tasks = [worker.task for worker in self._workers.values() if worker.task is not None]
        for place in list(self._workers):
            self._end(place)
        await asyncio.gather(*tasks, return_exceptions=True)
