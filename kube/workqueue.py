"""A queue of keys for reconcilers: each key is in it once, and is worked on by one worker at a time.

A key added while a worker has it is kept aside and comes back when the worker is done (the dirty and processing sets of
client-go). Failures come back after an exponential delay per key. Delayed keys share one timer (`DelayedKeys`). Keys are worked
on in the order in which they are added, or round robin over their owners (`RoundRobin`).
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from kube.clock import SYSTEM, Clock
from kube.counters import Counter, Gauge, Histogram, before_scrape
from kube.delayed_keys import DelayedKeys
from kube.round_robin import RoundRobin

K = TypeVar("K", bound=Hashable)

BASE_DELAY, MAX_DELAY = 0.005, 1000.0
"""Seconds: client-go's ItemExponentialFailureRateLimiter."""


_LONG = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0)
DEPTH = Gauge("workqueue_depth", "Keys that wait in a queue.", "name")
ADDED = Counter("workqueue_adds", "Keys added to a queue.", "name")
RETRIED = Counter("workqueue_retries", "Keys added again after a failure.", "name")
WAITED = Histogram("workqueue_queue_duration_seconds", "Time that keys waited.", "name", buckets=_LONG)
WORKED = Histogram("workqueue_work_duration_seconds", "Time that keys were worked on.", "name", buckets=_LONG)
UNFINISHED = Gauge("workqueue_unfinished_work_seconds", "Time that work under way has taken, in all.", "name")
LONGEST = Gauge("workqueue_longest_running_processor_seconds", "Time that the oldest work has taken.", "name")
_named: weakref.WeakSet[WorkQueue[Any]] = weakref.WeakSet()


def _update_metrics() -> None:
    """Set the gauges of the queues, before a scrape; queues of one name count together."""
    for gauge in (DEPTH, UNFINISHED, LONGEST):
        gauge.values = dict.fromkeys(gauge.values, 0.0)
    for queue in _named:
        ages = queue.under_way()
        DEPTH.add(queue.name, amount=len(queue))
        UNFINISHED.add(queue.name, amount=sum(ages))
        LONGEST.set(queue.name, value=max(LONGEST.values.get((queue.name,), 0.0), *ages, 0.0))


before_scrape(_update_metrics)


class ShutDown(Exception):
    """The queue was shut down."""


class WorkQueue(Generic[K]):
    """An async queue of distinct keys with delayed and rate-limited adding."""

    def __init__(
        self, clock: Clock = SYSTEM, name: str = "", owner: Callable[[K], str] | None = None, each: int = 1
    ) -> None:
        """With `owner`, keys are taken round robin over their owners, of which each has at most `each` workers."""
        self._clock, self._name = clock, name
        if name:
            _named.add(self)
            for counter in (ADDED, RETRIED):  # a queue without keys is shown as 0, as upstream's
                counter.add(name, amount=0)
            self._waited, self._worked = WAITED.bound(name), WORKED.bound(name)
        self._since: dict[K, float] = {}
        """Time at which a key was added, or taken by a worker."""
        self._round_robin = None if owner is None else RoundRobin(owner, each)
        self._queue: deque[K] | RoundRobin[K] = deque() if self._round_robin is None else self._round_robin
        self._dirty: set[K] = set()
        self._processing: set[K] = set()
        self._failures: dict[K, int] = {}
        self._delayed: DelayedKeys[K] = DelayedKeys(clock, self.add, name)
        self._idle: deque[asyncio.Future[None]] = deque()
        """Workers that wait for a key."""
        self._down = False

    @property
    def name(self) -> str:
        """Name in metrics; empty: none are reported."""
        return self._name

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, key: K) -> None:
        """Have the key worked on soon."""
        if self._down or key in self._dirty:
            return
        self._dirty.add(key)
        if self._name:
            ADDED.add(self._name)
        if key not in self._processing:
            self._append(key)

    def _append(self, key: K) -> None:
        self._queue.append(key)
        if self._idle:
            self._wake_one()
        if self._name:
            self._since[key] = self._clock.monotonic()

    def _wake_one(self) -> None:
        """Wake one worker: all of them would contend for one key."""
        while self._idle:
            idle = self._idle.popleft()
            if not idle.done():
                idle.set_result(None)
                return

    def add_after(self, key: K, seconds: float) -> None:
        """Have the key worked on after a delay; of several delays the soonest counts."""
        if seconds <= 0:
            self.add(key)
            return
        if self._down:
            return
        self._delayed.add(key, seconds)

    def add_rate_limited(self, key: K) -> None:
        """Have the key worked on after its back-off: 5 ms doubling up to 1000 s."""
        if self._name:
            RETRIED.add(self._name)
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
            await self._wait()
        key = self._queue.popleft()
        self._dirty.discard(key)
        self._processing.add(key)
        if self._name:
            now = self._clock.monotonic()
            self._waited(now - self._since.get(key, now))
            self._since[key] = now
        return key

    async def _wait(self) -> None:
        idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(idle)
        try:
            await idle
        except BaseException:
            if idle in self._idle:
                self._idle.remove(idle)
            if self._queue:
                self._wake_one()  # the key that this worker was woken for is another's
            raise

    def done(self, key: K) -> None:
        self._processing.discard(key)
        if self._name:
            now = self._clock.monotonic()
            self._worked(now - self._since.pop(key, now))
        if self._round_robin is not None:
            self._round_robin.release(key)
            if self._round_robin:
                self._wake_one()  # the worker that had the key may take another owner's
        if key in self._dirty:
            self._append(key)

    def under_way(self) -> list[float]:
        """Return how long each key that a worker has was worked on so far, in seconds."""
        now = self._clock.monotonic()
        return [now - self._since.get(key, now) for key in self._processing]

    def shut_down(self) -> None:
        self._down = True
        _named.discard(self)
        self._delayed.clear()
        while self._idle:
            self._wake_one()
