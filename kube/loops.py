"""Loops that outlast their own errors: an unforeseen one is logged, counted, and the loop starts again after a pause.

Metrics say which run. An error that ends a daemon on purpose (its configuration cannot be used) is named when the loops are
made, and passes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kube import cancellation
from kube.clock import Clock
from kube.counters import Counter, Gauge, before_scrape

log = logging.getLogger(__name__)

FIRST_RETRY, LAST_RETRY = 1.0, 60.0
"""Seconds before a loop that failed starts again: doubled with each failure, from the first one again after a quiet time."""

RUNNING = Gauge(
    "wherry_loop_running", "Whether a loop runs (0: it ended or waits to start again after a failure)", "loop"
)
FAILURES = Counter("wherry_loop_failures", "Number of times that a loop failed and started again", "loop")
TASKS = Gauge("wherry_asyncio_tasks", "Number of tasks of the event loop that have not ended")
_running_on: list[asyncio.AbstractEventLoop] = []
"""The event loop of the process, since a loop runs on it."""


def count_tasks() -> None:
    """Set the gauge of tasks; a scrape of all metrics does it by itself."""
    TASKS.set(value=sum(len(asyncio.all_tasks(each)) for each in _running_on))


before_scrape(count_tasks)


class Loops:
    """The loops of a daemon."""

    def __init__(self, clock: Clock, fatal: tuple[type[Exception], ...] = ()) -> None:
        self._clock, self._fatal = clock, fatal

    async def run(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` until it returns or is cancelled, again and again where it fails. Raise the fatal errors."""
        _running_on[:] = [asyncio.get_running_loop()]
        FAILURES.add(name, amount=0)
        delay = FIRST_RETRY
        while True:
            began = self._clock.monotonic()
            RUNNING.set(name, value=1)
            try:
                await cancellation.as_error(work())
                return
            except self._fatal:
                raise
            except Exception:
                FAILURES.add(name)
                log.exception("%s failed and starts again", name)
            finally:
                RUNNING.set(name, value=0)
            if self._clock.monotonic() - began > LAST_RETRY:
                delay = FIRST_RETRY
            await self._clock.sleep(delay)
            delay = min(delay * 2, LAST_RETRY)
