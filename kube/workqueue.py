"""A queue of keys for reconcilers: each key is in it once, and is worked on by one worker at a time.

A key added while a worker has it is kept aside and comes back when the worker is done (the dirty and processing sets of
client-go). Failures come back after an exponential delay per key.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from kube.clock import SYSTEM, Clock

K = TypeVar("K", bound=Hashable)

BASE_DELAY, MAX_DELAY = 0.005, 1000.0
"""Seconds: client-go's ItemExponentialFailureRateLimiter."""


class ShutDown(Exception):
    """The queue was shut down."""


class WorkQueue(Generic[K]):
    """An async queue of distinct keys with delayed and rate-limited adding."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._queue: deque[K] = deque()
        self._dirty: set[K] = set()
        self._processing: set[K] = set()
        self._failures: dict[K, int] = {}
        self._delayed: dict[K, tuple[float, asyncio.Task[None]]] = {}
        self._ready = asyncio.Event()
        self._down = False

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, key: K) -> None:
        """Have the key worked on soon."""
        if self._down or key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._processing:
            self._queue.append(key)
            self._ready.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Have the key worked on after a delay; of several delays the soonest counts."""
        if seconds <= 0:
            self.add(key)
            return
        if self._down:
            return
        due = self._clock.monotonic() + seconds
        if waiting := self._delayed.get(key):
            if waiting[0] <= due:
                return
            waiting[1].cancel()
        task = asyncio.create_task(self._later(key, seconds), name=f"workqueue delay {key}")
        self._delayed[key] = (due, task)

    async def _later(self, key: K, seconds: float) -> None:
        await self._clock.sleep(seconds)
        del self._delayed[key]
        self.add(key)

    def add_rate_limited(self, key: K) -> None:
        """Have the key worked on after its back-off: 5 ms doubling up to 1000 s."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.add_after(key, min(BASE_DELAY * 2 ** min(failures, 30), MAX_DELAY))

    def forget(self, key: K) -> None:
        """End the key's back-off."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """Wait for a key; pair every `get` with a `done`. Raises ShutDown at the end."""
        while not self._queue:
            if self._down:
                raise ShutDown
            self._ready.clear()
            await self._ready.wait()
        key = self._queue.popleft()
        self._dirty.discard(key)
        self._processing.add(key)
        return key

    def done(self, key: K) -> None:
        self._processing.discard(key)
        if key in self._dirty:
            self._queue.append(key)
            self._ready.set()
        elif not self._queue and self._down:
            self._ready.set()

    def shut_down(self) -> None:
        self._down = True
        for _, task in self._delayed.values():
            task.cancel()
        self._delayed.clear()
        self._ready.set()
