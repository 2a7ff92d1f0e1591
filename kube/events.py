"""Events about objects, sent to the API in the background.

A recorder queues; one task sends, the namespaces in turn (event_queue.py). What happens again is counted on the event that is
already there (same source, object, reason, message), many of a kind with different messages are folded into one "(combined
from similar events)", and a source that floods one object is cut off for a while: client-go's EventCorrelator with its numbers.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import OrderedDict
from collections.abc import Collection
from typing import Any

import msgspec

from kube import cancellation
from kube.api import core_v1, meta_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock, format_micro_time, format_time
from kube.decisions import Decisions
from kube.errors import StatusError
from kube.event_queue import EventQueue, Queued
from kube.journal import Journal
from kube.object_references import reference
from kube.serialize import readable

log = logging.getLogger(__name__)

NORMAL, WARNING = "Normal", "Warning"
CACHE_SIZE = 4096
SIMILAR_LIMIT, SIMILAR_SECONDS = 10, 600
BURST, REFILL_SECONDS = 25, 300
COMBINED = "(combined from similar events): "


class _Known(msgspec.Struct):
    name: str
    namespace: str
    count: int
    first: str


class _Similar(msgspec.Struct):
    messages: set[str] = msgspec.field(default_factory=set)
    last: float = 0.0


class _Bucket(msgspec.Struct):
    tokens: float = BURST
    last: float = 0.0


class EventRecorder:
    """Record events of one component ("kubelet", "default-scheduler") on one host. `run` sends them.

    With several `workers` so many are sent at once; those about one object stay in order. Each is recorded in the `journal`,
    also one that is not sent, except those of the reasons that are `left_out`.
    """

    def __init__(
        self,
        client: Client,
        component: str,
        host: str = "",
        *,
        clock: Clock = SYSTEM,
        workers: int = 1,
        journal: Journal | None = None,
        left_out: Collection[str] = (),
    ) -> None:
        self._client, self._component, self._host, self._clock = client, component, host, clock
        self.decisions = Decisions(journal, component, left_out)
        self._queues = [EventQueue(clock) for _ in range(workers)]
        self._numbers = itertools.count()
        self._known: OrderedDict[tuple[str, ...], _Known] = OrderedDict()
        self._similar: OrderedDict[tuple[str, ...], _Similar] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, ...], _Bucket] = OrderedDict()

    def event(
        self,
        obj: Any,
        type: str,
        reason: str,
        message: str,
        *,
        field_path: str = "",
        action: str = "",
        related: Any = None,
        grounds: str = "",
    ) -> None:
        """Record that something happened to `obj` (an object or a reference); returns at once.

        `grounds` are recorded in the journal and not sent.
        """
        about = reference(obj, field_path)
        self.decisions.event(about, reason, message, grounds)
        now = self._clock.now()
        stamp = format_time(now)
        nanos = int(now.timestamp() * 1e6) * 1000 + next(self._numbers) % 1000
        self._queues[hash((about.kind, about.namespace, about.name)) % len(self._queues)].put(
            core_v1.Event(
                api_version="v1",
                kind="Event",
                metadata=meta_v1.ObjectMeta(
                    # The namespace of what has none is default.
                    name=f"{about.name}.{nanos:x}",
                    namespace=about.namespace or "default",
                ),
                involved_object=about,
                related=reference(related) if related is not None else None,
                reason=reason,
                message=readable(message[:1024]),
                type=type,
                source=core_v1.EventSource(component=self._component, host=self._host or None),
                first_timestamp=stamp,
                last_timestamp=stamp,
                count=1,
                action=action or None,
                event_time=format_micro_time(now) if action else None,
                reporting_component=self._component,
                reporting_instance=self._host or (self._component if action else ""),
            )
        )

    async def run(self) -> None:
        """Send what is recorded until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number, queue in enumerate(self._queues):
                group.create_task(cancellation.as_error(self._run(queue)), name=f"events of {self._component} {number}")

    async def _run(self, queue: EventQueue) -> None:
        while True:
            await self._send_or_drop(queue, await queue.get())

    async def flush(self) -> None:
        """Send what is queued now (at shutdown); what the server refuses stays."""
        for queue in self._queues:
            while (queued := queue.take()) is not None:
                await self._send_or_drop(queue, queued)

    async def _send_or_drop(self, queue: EventQueue, queued: Queued) -> None:
        """Send one event; an unexpected error drops this event, not those behind it."""
        event = queued.event
        try:
            if queued.tries == 0:
                if not self._allowed(event):
                    return
                self._combine(event)
            await self._write(event)
        except StatusError as error:
            if error.code in (429, 500, 503, 504):
                queue.put_back(queued)
            else:  # its namespace is going away, or it is not valid: another try would say the same
                log.debug("event %s %s refused: %s", event.reason, event.message, error)
        except Exception:
            log.exception("event %s about %s dropped", event.reason, event.metadata.name)

    async def _write(self, event: core_v1.Event) -> None:
        key = _identity(event)
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            patch = {"count": known.count + 1, "lastTimestamp": event.last_timestamp, "message": event.message}
            try:
                await self._client.patch(core_v1.Event, known.name, known.namespace, patch)
                known.count += 1
                return
            except StatusError as error:
                if not error.not_found:  # it has lived its hour: begin again
                    raise
        await self._client.create(event)
        self._known[key] = _Known(
            event.metadata.name or "", event.metadata.namespace or "", 1, event.first_timestamp or ""
        )
        _trim(self._known)

    def _allowed(self, event: core_v1.Event) -> bool:
        """Take a token from the bucket of this source and object: 25 at once, then one every 5 minutes."""
        about, now = event.involved_object or core_v1.ObjectReference(), self._clock.monotonic()
        key = (self._component, about.kind or "", about.namespace or "", about.name or "", about.uid or "")
        bucket = self._buckets.setdefault(key, _Bucket(last=now))
        self._buckets.move_to_end(key)
        _trim(self._buckets)
        bucket.tokens = min(BURST, bucket.tokens + (now - bucket.last) / REFILL_SECONDS)
        bucket.last = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    def _combine(self, event: core_v1.Event) -> None:
        """Fold the event into a combined one when ten different messages of its kind came within ten minutes."""
        key, now = _identity(event)[:-1], self._clock.monotonic()
        similar = self._similar.setdefault(key, _Similar(last=now))
        self._similar.move_to_end(key)
        _trim(self._similar)
        if now - similar.last > SIMILAR_SECONDS:
            similar.messages.clear()
        similar.last = now
        similar.messages.add(event.message or "")
        if len(similar.messages) >= SIMILAR_LIMIT:
            event.message = COMBINED + (event.message or "")


def _identity(event: core_v1.Event) -> tuple[str, ...]:
    about = event.involved_object or core_v1.ObjectReference()
    message = event.message or ""
    return (
        about.kind or "",
        about.namespace or "",
        about.name or "",
        about.uid or "",
        about.field_path or "",
        event.type or "",
        event.reason or "",
        COMBINED if message.startswith(COMBINED) else message,
    )


def _trim(cache: OrderedDict[Any, Any]) -> None:
    while len(cache) > CACHE_SIZE:
        cache.popitem(last=False)
