"""Keys with the moments at which they are due: one heap and one task that sleeps until the first of them.

Any number of keys may be due at once, so they are passed on in slices, with an iteration of the event loop after each. A task
for each key would take a kilobyte, and all of them would have their steps in one iteration.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from kube.clock import Clock

K = TypeVar("K", bound=Hashable)
log = logging.getLogger(__name__)

SLICE = 256
"""Keys that are passed on in an iteration of the event loop."""
LEAST_REPLACED = 64
"""Replaced entries that the heap may hold however few keys wait."""


class DelayedKeys(Generic[K]):
    """Passes each key to `due` after its delay, in the order of the moments; of several delays of a key the soonest counts."""

    def __init__(self, clock: Clock, due: Callable[[K], None], name: str = "") -> None:
        self._clock, self._pass_on, self._name = clock, due, name
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        """Moments with keys, those of one moment in the order in which they were added; some are replaced by sooner ones."""
        self._added = 0
        self._timer: asyncio.Task[None] | None = None
        self._wakes = math.inf
        """Moment at which the timer wakes; infinite without one, and minus infinity while it passes keys on."""

    def __len__(self) -> int:
        return len(self._due)

    def add(self, key: K, seconds: float) -> None:
        """Have the key passed on after a delay."""
        due = self._clock.monotonic() + seconds
        if self._due.get(key, math.inf) <= due:
            return
        self._due[key] = due
        self._added += 1
        heapq.heappush(self._heap, (due, self._added, key))
        if len(self._heap) > 2 * len(self._due) + LEAST_REPLACED:
            self._heap = [each for each in self._heap if self._due.get(each[2]) == each[0]]
            heapq.heapify(self._heap)
        if due < self._wakes:
            self._stop_timer()
            self._wakes = due
            self._timer = asyncio.create_task(self._run(seconds), name=f"delayed keys {self._name}")

    def clear(self) -> None:
        """Forget all keys."""
        self._stop_timer()
        self._due.clear()
        self._heap.clear()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._wakes = None, math.inf

    async def _run(self, seconds: float) -> None:
        """Pass keys on when they are due, until there are none."""
        while True:
            await self._clock.sleep(seconds)
            self._wakes = -math.inf
            more = True
            while more:
                more = self._pass_on_due(SLICE)
                await asyncio.sleep(0)
            if not self._heap:
                self._timer, self._wakes = None, math.inf
                return
            self._wakes = self._heap[0][0]
            seconds = max(self._wakes - self._clock.monotonic(), 0.0)

    def _pass_on_due(self, most: int) -> bool:
        """Pass on keys that are due; return whether there may be more."""
        now = self._clock.monotonic()
        for _ in range(most):
            if not self._heap or self._heap[0][0] > now:
                return False
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                try:
                    self._pass_on(key)
                except Exception:
                    log.exception("%s: the delayed key %s cannot be added", self._name, key)
        return True
