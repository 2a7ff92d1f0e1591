"""Queue of events to send: one queue for each namespace, served round robin.

An event that the server rejects for now is requeued, and the rest of its namespace waits behind it, so that the
order stays. Other namespaces continue: a namespace whose limit is reached (429) blocks no events of others.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import Any

import msgspec

from kube.api import core_v1
from kube.clock import Clock

MAX_QUEUED = 1000
"""Events that wait; beyond it the oldest of the namespace that has most is dropped."""
TRIES, RETRY_SECONDS = 12, 10
"""client-go's maxTriesPerEvent and defaultSleepDuration."""


class Queued(msgspec.Struct):
    """An event, and how often the server refused it for now."""

    event: core_v1.Event
    tries: int = 0


class _Namespace(msgspec.Struct):
    events: deque[Queued] = msgspec.field(default_factory=deque)
    retry_at: float = 0.0
    """Time from which the next event may be sent, by the monotonic clock."""


class EventQueue:
    """The events that one task sends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._namespaces: OrderedDict[str, _Namespace] = OrderedDict()
        self._queued = 0
        self._wake = asyncio.Event()

    def put(self, event: core_v1.Event) -> None:
        """Put an event behind those of its namespace."""
        if self._queued >= MAX_QUEUED:
            max(self._namespaces.values(), key=lambda namespace: len(namespace.events)).events.popleft()
            self._queued -= 1
        self._of(event).events.append(Queued(event))
        self._queued += 1
        self._wake.set()

    def put_back(self, queued: Queued) -> None:
        """Have an event retried after a while, before others of its namespace; drop it after its tries."""
        namespace = self._of(queued.event)
        namespace.retry_at = self._clock.monotonic() + RETRY_SECONDS
        queued.tries += 1
        if queued.tries < TRIES and self._queued < MAX_QUEUED:
            namespace.events.appendleft(queued)
            self._queued += 1

    def take(self) -> Queued | None:
        """Take the first event of the namespace whose turn it is; None if none may be sent now."""
        now = self._clock.monotonic()
        for name, namespace in list(self._namespaces.items()):
            if namespace.retry_at > now:
                continue
            if not namespace.events:
                del self._namespaces[name]
                continue
            self._namespaces.move_to_end(name)
            self._queued -= 1
            return namespace.events.popleft()
        return None

    async def get(self) -> Queued:
        """Take the next event as soon as one may be sent."""
        while True:
            self._wake.clear()
            if (queued := self.take()) is not None:
                return queued
            await self._until_next()

    async def _until_next(self) -> None:
        if not self._namespaces:
            await self._wake.wait()
            return
        retry_at = min(namespace.retry_at for namespace in self._namespaces.values())
        pause = self._clock.sleep(retry_at - self._clock.monotonic())
        waits: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._wake.wait(), name="an event"),
            asyncio.create_task(pause, name="events' retry"),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _of(self, event: core_v1.Event) -> _Namespace:
        return self._namespaces.setdefault(event.metadata.namespace or "", _Namespace())
