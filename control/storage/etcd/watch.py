"""Watches: one stream each, opened again at another member when it breaks, from where it was.

A watch follows all keys that etcd has and keeps what has its prefix. So every revision arrives, and the last one that
arrived is exactly how far this watch has seen everything: nothing has to be asked. etcd can be asked
(WatchProgressRequest), but before 3.4.31 and 3.5.13 the answer may overtake events, and a list that trusts it is stale.

A stream is opened at the last revision seen, not after it, and what was seen is dropped here. That way etcd itself tells
whether the past was compacted: started one later, it would not notice that the next deletion is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import grpc.aio

from control.storage.etcd.cluster import END, FIRST_PAUSE, LAST_PAUSE, Cluster
from control.storage.etcd.coordinates import EVERYTHING, Coordinates
from control.storage.etcd.messages import Event as WireEvent
from control.storage.etcd.messages import WatchCreateRequest, WatchRequest, WatchResponse
from control.storage.etcd.revisions import FIRST
from control.storage.store import Batch, Compacted, Event, StoreError, Unavailable

log = logging.getLogger(__name__)

BACKLOG = 10_000
"""Events waiting for the reader at which the stream is left alone: etcd then keeps them."""
PROGRESS_SECONDS = 0.1
OPEN_SECONDS = 5.0
"""Time that a member has to begin to watch."""


class EtcdWatch:
    """One watch (see `control.storage.store.Watch`)."""

    def __init__(
        self,
        cluster: Cluster,
        at: Coordinates,
        prefix: str,
        after: int,
        previous: bool,
        closed: Callable[[EtcdWatch], None],
    ) -> None:
        self._cluster, self._at, self._prefix, self._previous = cluster, at, prefix, previous
        self._position = after
        self._told = after
        self._pending: list[Event] = []
        self._failure: StoreError | None = None
        self._closed, self._on_close = False, closed
        self._progress: asyncio.TimerHandle | None = None
        self._tell = False
        self._changed, self._room = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"etcd-watch {prefix}")

    # -- the reader's side ----------------------------------------------------------------------------------------
    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        while not self._closed:
            if self._pending or self._position > self._told or self._tell:
                events, self._pending = self._pending, []
                self._told, self._tell = self._position, False
                self._room.set()
                return Batch(events, self._told)
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            await self._changed.wait()
        raise StopAsyncIteration

    def request_progress(self) -> None:
        """Say soon how far this watch is, also where nothing arrives."""
        if self._progress is None and not self._closed:
            self._progress = asyncio.get_running_loop().call_later(PROGRESS_SECONDS, self._tell_progress)

    def _tell_progress(self) -> None:
        self._progress, self._tell = None, True
        self._changed.set()

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._pending.clear()
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
                log.debug("the watch of %s broke off at revision %d: %s", self._prefix, self._position, error)
            except StoreError as error:
                self._fail(error)
                return
            except Exception as error:
                # A task that ends without a word would leave the watch silent for ever.
                log.exception("the watch of %s cannot go on", self._prefix)
                self._fail(Unavailable(f"the watch of {self._prefix} cannot go on: {error}"))
                return
            await asyncio.sleep(pause)
            pause = FIRST_PAUSE if self._position > position else min(pause * 2, LAST_PAUSE)

    def _fail(self, error: StoreError) -> None:
        self._failure = error
        self._changed.set()

    async def _follow(self) -> None:
        start = self._at.wire(self._position)
        if start < FIRST and (start or self._at.offset):
            raise Compacted(self._position, self._at.revision(FIRST))
        at, stream = self._cluster.stream("/etcdserverpb.Watch/Watch", WatchResponse)
        why = "it ended the stream"
        try:
            key, end = EVERYTHING
            # The state before is always wanted: without it a deletion does not tell when the key had come to be.
            create = WatchCreateRequest(key=key, range_end=end, start_revision=max(start, FIRST), prev_kv=True)
            # etcd says at once that the watch is there. A call that is cancelled while it connects never says anything, and
            # neither does its write end (grpc.aio waits for metadata that are not sent any more).
            async with asyncio.timeout(OPEN_SECONDS):
                await stream.write(WatchRequest(create_request=create))
                answer = await stream.read()
            while answer is not END:
                self._cluster.trouble = ""
                if answer.canceled:
                    if answer.compact_revision:
                        raise Compacted(self._position, self._at.revision(answer.compact_revision))
                    why = answer.cancel_reason or why
                    break
                self._take(answer)
                self._cluster.seen(answer.header.revision)
                while len(self._pending) > BACKLOG:
                    self._room.clear()
                    await self._room.wait()
                answer = await stream.read()
        except TimeoutError:
            why = "it did not begin to watch"
        except grpc.aio.AioRpcError as error:
            why = error.details() or error.code().name
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            why = "it was left"
        finally:
            stream.cancel()
        self._cluster.turn_from(at, why)

    def _take(self, answer: WatchResponse) -> None:
        """Take the events not seen before. etcd sends the events of one revision together."""
        seen = self._position
        for event in answer.events:
            revision = self._at.revision(event.kv.mod_revision)
            if revision <= seen:
                continue
            name = self._at.name(event.kv.key)
            if name is not None and name.startswith(self._prefix):
                self._pending.append(self._event(event, name, revision))
            self._position = revision
        if self._position > seen:
            self._changed.set()

    def _event(self, event: WireEvent, name: str, revision: int) -> Event:
        kv = event.kv
        fresh = kv.create_revision == kv.mod_revision
        if self._previous and not fresh and not event.HasField("prev_kv"):
            raise Compacted(self._position, revision)  # between opening the stream and reading the state before
        before = self._at.item(event.prev_kv, name) if event.HasField("prev_kv") else None
        previous = before if self._previous else None
        if event.type == WireEvent.DELETE:
            return Event("DELETED", name, b"", revision, before.create_revision if before else 0, previous)
        created = self._at.revision(kv.create_revision)
        return Event("ADDED" if fresh else "MODIFIED", name, kv.value, revision, created, previous)
