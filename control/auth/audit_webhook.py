"""Audit events posted to another program (--audit-webhook-config-file), as audit.k8s.io/v1 EventLists.

In batches, the default: events wait for others, at most `max_wait` seconds, and go up to `max_size` at a time and
`qps` times a second; a batch that cannot be delivered is retried with a growing back-off and then lost. What finds
the buffer full, or BUFFER_BYTES of events that wait or are being sent, is lost too, and counted.

Blocking: each event is posted alone and the request waits for it; blocking-strict: one that cannot be recorded when it
comes in is refused. Requests wait in round robin over their users for as long as it takes, and the timeout starts when an event
is sent: users with many requests lose none of their events by it, and delay nobody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections import deque
from collections.abc import Awaitable

import msgspec

from control.auth.audit import ERRORS, REJECTED, Sink
from control.auth.webhooks.client import PLACES, PLACES_OF_ONE, ReviewClient, ReviewFailed
from kube.clock import Clock
from kube.errors import internal
from kube.fair_places import FairPlaces
from kube.owners import owner_of

log = logging.getLogger(__name__)
MODES = ("batch", "blocking", "blocking-strict")
BUFFER_BYTES = 128 << 20
BATCH_BYTES = 10 << 20
"""Bytes of a batch of more than one event, as upstream's where it truncates (--audit-webhook-truncate-max-batch-size)."""
CLOSING = 5.0
"""Seconds that the last batch may take when the server ends."""


class Batching(msgspec.Struct, frozen=True):
    """Upstream's --audit-webhook-batch-* flags."""

    buffer_size: int = 10_000
    max_size: int = 400
    max_wait: float = 30.0
    qps: float = 10.0
    burst: int = 15


class BatchWebhook(Sink):
    """Posts events in batches while `run` runs."""

    def __init__(self, client: ReviewClient, clock: Clock, batching: Batching) -> None:
        self._client, self._clock, self._batching = client, clock, batching
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = self._sending_bytes = 0
        self._some, self._full = asyncio.Event(), asyncio.Event()
        self._tokens, self._refilled = float(batching.burst), clock.monotonic()
        self._sending: set[asyncio.Task[None]] = set()

    def write(self, line: bytes, user: bytes = b"") -> Awaitable[None] | None:
        if (
            len(self._waiting) >= self._batching.buffer_size
            or self._waiting_bytes + self._sending_bytes >= BUFFER_BYTES
        ):
            ERRORS.add("webhook")
            return None
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        self._some.set()
        if self._is_batch():
            self._full.set()
        return None

    async def run(self) -> None:
        """Send batches until cancelled."""
        while True:
            await self._some.wait()
            with contextlib.suppress(TimeoutError):
                await self._within(self._batching.max_wait)
            await self._throttle()
            task = asyncio.create_task(self._send(self._batch()), name="audit-webhook-batch")
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _within(self, seconds: float) -> None:
        """Wait for a full batch, at most so long."""
        full = asyncio.ensure_future(self._full.wait())
        late = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((full, late), return_when=asyncio.FIRST_COMPLETED)
        finally:
            full.cancel()
            late.cancel()

    async def _throttle(self) -> None:
        while True:
            now = self._clock.monotonic()
            self._tokens += (now - self._refilled) * self._batching.qps
            self._tokens, self._refilled = min(self._tokens, float(self._batching.burst)), now
            if self._tokens >= 1:
                self._tokens -= 1
                return
            await self._clock.sleep((1 - self._tokens) / self._batching.qps)

    def _batch(self) -> list[bytes]:
        """Take the next batch, which the caller sends."""
        found, size = list[bytes](), 0
        while self._waiting and len(found) < self._batching.max_size:
            if found and size + len(self._waiting[0]) > BATCH_BYTES:
                break
            found.append(self._waiting.popleft())
            size += len(found[-1])
        self._waiting_bytes -= size
        self._sending_bytes += size
        if not self._is_batch():
            self._full.clear()
        if not self._waiting:
            self._some.clear()
        return found

    def _is_batch(self) -> bool:
        """Return whether as much waits as goes at a time."""
        return len(self._waiting) >= self._batching.max_size or self._waiting_bytes >= BATCH_BYTES

    async def _send(self, lines: list[bytes]) -> None:
        try:
            await self._client.send(event_list(lines))
        except ReviewFailed as error:
            ERRORS.add("webhook", amount=len(lines))
            log.error("%d audit events are lost: %s", len(lines), error)
        finally:
            self._sending_bytes -= sum(map(len, lines))

    async def close(self) -> None:
        """Send what waits, as far as it goes quickly."""
        sending = asyncio.create_task(self._send_waiting(), name="last audit events")
        # Not asyncio.timeout, which raises CancelledError in a task that is being cancelled (Python 3.11.2).
        await asyncio.wait((sending,), timeout=CLOSING)
        for task in (sending, *self._sending):
            task.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await self._client.close()

    async def _send_waiting(self) -> None:
        await asyncio.gather(*self._sending)
        while self._waiting:
            await self._send(self._batch())


class _User(msgspec.Struct):
    """The part of an event's user that tells whose share its sending takes: there may be many groups and extra values."""

    username: str = ""


class BlockingWebhook(Sink):
    """Posts each event while its request waits; `strict`: requests that cannot be recorded when they come in are refused."""

    def __init__(self, client: ReviewClient, *, strict: bool) -> None:
        self._client, self._strict = client, strict
        self._places = FairPlaces(PLACES, PLACES_OF_ONE, sys.maxsize, None)

    def write(self, line: bytes, user: bytes = b"") -> Awaitable[None] | None:
        return self._send(line, user)

    async def _send(self, line: bytes, user: bytes) -> None:
        try:
            name = msgspec.json.decode(user, type=_User).username if user else ""
            async with self._places.place(owner_of(name)):
                await self._client.send(event_list([line]))
        except ReviewFailed as error:
            ERRORS.add("webhook")
            log.error("an audit event is lost: %s", error)
            if self._strict and b'"stage":"RequestReceived"' in line:
                REJECTED.add()
                raise internal(f"audit: {error}") from error

    async def close(self) -> None:
        await self._client.close()


def event_list(lines: list[bytes]) -> bytes:
    """Make one document of events."""
    parts = [b'{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[']
    for line in lines:
        parts += (line, b",")
    return b"".join((*parts[:-1], b"]}"))
