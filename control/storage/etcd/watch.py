"""Watches: one stream each, which is resumed at another member if it breaks.

A watch receives the events of all keys of etcd and filters them by its prefix. So every revision arrives, and the last one
that arrived is the revision up to which the watch is complete: no progress requests are needed. etcd has them
(WatchProgressRequest), but before 3.4.31 and 3.5.13 the response may overtake events, which makes lists that rely on it
stale.

A stream starts at the last revision seen, not after it, and events seen before are dropped here. Only then does etcd report
that the past was compacted: a stream that starts one revision later would miss the compaction of the next deletion.

An etcd that was replaced by an older copy of itself would send nothing until it has reached the watch's revision again, so
a watch that is ahead of etcd ends, as after a compaction.

etcd reads up to 1000 revisions for a watch of the past, with the states before: up to 3 GB. So responses are requested in
fragments of about 2 MiB, of which the next is read when the reader has received those before. A fragment may end within a
revision: its events are held back until all have arrived, and dropped if the stream breaks before, since they arrive again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import grpc.aio

from control.event_loop.pacing import ServerSlice
from control.storage.etcd.cluster import END, FIRST_PAUSE, LAST_PAUSE, MAX_RESPONSE_BYTES, Cluster
from control.storage.etcd.errors import ResponseTooLarge, details, translate
from control.storage.etcd.mapping import ALL_KEYS, EtcdMapping
from control.storage.etcd.messages import Event as WireEvent
from control.storage.etcd.messages import RangeRequest, RangeResponse, WatchCreateRequest, WatchRequest, WatchResponse
from control.storage.etcd.revisions import FIRST, NOWHERE
from control.storage.etcd.watch_queue import EventQueue
from control.storage.store import Batch, Compacted, Event, StoreError, Unavailable

log = logging.getLogger(__name__)

REVISION_BYTES = MAX_RESPONSE_BYTES
"""Maximum number of bytes of the values of one revision's events; the watch ends above it."""
PROGRESS_SECONDS = 0.1
OPEN_SECONDS = 5.0
"""Timeout of the start of a stream."""


class EtcdWatch:
    """One watch (see `control.storage.store.Watch`)."""

    def __init__(
        self,
        cluster: Cluster,
        mapping: EtcdMapping,
        prefix: str,
        after: int,
        *,
        previous: bool,
        closed: Callable[[EtcdWatch], None],
    ) -> None:
        self._cluster, self._mapping, self._prefix, self._previous = cluster, mapping, prefix, previous
        self._position = after
        self._reported = after
        self._pending = EventQueue()
        self._arriving, self._arrived = after, EventQueue()
        """The revision of which further events may arrive, and those that have."""
        self._failure: StoreError | None = None
        self._closed, self._on_close = False, closed
        self._progress: asyncio.TimerHandle | None = None
        self._report = False
        self._changed, self._space = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"etcd-watch {prefix}")

    # -- the reader's side ----------------------------------------------------------------------------------------
    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        while not self._closed:
            if self._pending.events or self._position > self._reported or self._report:
                events = self._pending.take()
                self._reported, self._report = self._position, False
                self._space.set()
                return Batch(events, self._reported)
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            await self._changed.wait()
        raise StopAsyncIteration

    def request_progress(self) -> None:
        """Report the revision of this watch soon, also without events."""
        if self._progress is None and not self._closed:
            self._progress = asyncio.get_running_loop().call_later(PROGRESS_SECONDS, self._report_progress)

    def _report_progress(self) -> None:
        self._progress, self._report = None, True
        self._changed.set()

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._pending.take()
        if self._progress is not None:
            self._progress.cancel()
        self._changed.set()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._on_close(self)

    # -- etcd's side ----------------------------------------------------------------------------------------------
    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            position = self._position
            try:
                await self._follow()
            except (Unavailable, grpc.aio.AioRpcError) as error:
                log.debug("the watch of %s was interrupted at revision %d: %s", self._prefix, self._position, error)
            except StoreError as error:
                self._fail(error)
                return
            except Exception as error:
                # Without this the watch would never end nor deliver events.
                log.exception("the watch of %s failed", self._prefix)
                self._fail(Unavailable(f"the watch of {self._prefix} failed: {error}"))
                return
            await asyncio.sleep(pause)
            pause = FIRST_PAUSE if self._position > position else min(pause * 2, LAST_PAUSE)

    def _fail(self, error: StoreError) -> None:
        self._failure = error
        self._changed.set()

    async def _follow(self) -> None:
        start = self._mapping.etcd_revision(self._position)
        if start < FIRST and (start or self._mapping.offset):
            raise Compacted(self._position, self._mapping.store_revision(FIRST))
        self._arriving, self._arrived = self._position, EventQueue()
        at, stream = self._cluster.stream("/etcdserverpb.Watch/Watch", WatchResponse)
        why = "it ended the stream"
        try:
            key, end = ALL_KEYS
            # The previous state is always needed: the event of a deletion has no create_revision.
            start = max(start, FIRST)
            create = WatchCreateRequest(key=key, range_end=end, start_revision=start, prev_kv=True, fragment=True)
            # etcd confirms a watch at once. A call that is cancelled while it connects never responds, and its write does not
            # end either (grpc.aio waits for metadata that are never sent).
            async with asyncio.timeout(OPEN_SECONDS):
                await stream.write(WatchRequest(create_request=create))
                response = await stream.read()
            if response is not END and self._mapping.store_revision(response.header.revision) < self._position:
                await self._check_history()
            while response is not END:
                self._cluster.trouble = ""
                if response.canceled:
                    if response.compact_revision:
                        raise Compacted(self._position, self._mapping.store_revision(response.compact_revision))
                    why = response.cancel_reason or why
                    break
                await self._append(response)
                self._cluster.seen(response.header.revision)
                while self._pending.full:
                    self._space.clear()
                    await self._space.wait()
                response = await stream.read()
        except TimeoutError:
            why = "it did not start the watch"
        except grpc.aio.AioRpcError as error:
            if isinstance(translate(error), ResponseTooLarge):
                raise self._too_large() from error
            why = details(error)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            why = "failover to another member"
        finally:
            stream.cancel()
        self._cluster.fail_over(at, why)

    async def _check_history(self) -> None:
        """Raise Compacted if etcd is older than this watch; the response of a member that lags behind says nothing yet."""
        request = RangeRequest(key=NOWHERE, count_only=True)
        current = (await self._cluster.call("/etcdserverpb.KV/Range", request, RangeResponse)).header.revision
        revision = self._mapping.store_revision(current)
        if revision < self._position:
            log.error(
                "etcd is at revision %d and was at %d: it was replaced by an older copy", revision, self._position
            )
            self._cluster.revision = current
            raise Compacted(self._position, revision)

    async def _append(self, response: WatchResponse) -> None:
        """Queue the events not seen before. etcd sends the events of one revision together, but for fragments."""
        server_slice = ServerSlice()
        for event in response.events:
            revision = self._mapping.store_revision(event.kv.mod_revision)
            if revision <= self._position:
                continue
            if revision > self._arriving:
                self._complete()
                self._arriving = revision
            name, size = self._mapping.store_key(event.kv.key), 0
            if name is not None and name.startswith(self._prefix):
                size = self._arrived.append(self._event(event, name, revision))
                if self._arrived.size > REVISION_BYTES:
                    raise self._too_large()
            await server_slice.step(size)
        if not response.fragment:
            self._complete()

    def _complete(self) -> None:
        """Queue the events of the revision of which all have arrived."""
        if self._arriving > self._position:
            self._pending.move_from(self._arrived)
            self._position = self._arriving
            self._changed.set()

    def _too_large(self) -> Compacted:
        """Return the error of a watch that cannot receive a change, and so has to begin after it."""
        log.debug("the change after revision %d is too large for the watch of %s", self._position, self._prefix)
        return Compacted(self._position, self._mapping.store_revision(self._cluster.revision))

    def _event(self, event: WireEvent, name: str, revision: int) -> Event:
        kv = event.kv
        fresh = kv.create_revision == kv.mod_revision
        known = event.HasField("prev_kv")
        if self._previous and not fresh and not known:
            raise Compacted(self._position, revision)  # between opening the stream and reading the state before
        previous = self._mapping.item(event.prev_kv, name) if self._previous and known else None
        if event.type == WireEvent.DELETE:
            created = self._mapping.store_revision(event.prev_kv.create_revision) if known else 0
            return Event("DELETED", name, b"", revision, created, previous)
        created = self._mapping.store_revision(kv.create_revision)
        return Event("ADDED" if fresh else "MODIFIED", name, kv.value, revision, created, previous)
