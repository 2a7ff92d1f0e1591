"""Reads of old changes for watches that start before the watch cache's recent changes: few at a time, round robin over users.

A read scans the changes of all resources since the watch's revision, also for a user who may watch one namespace, and takes up
to 0.1 s of CPU time for a request of 150 bytes. So only `places` reads run at once: SQLite has two reading threads, one of
which remains for other reads. A user's reads wait for each other, and may take SHARE of all time after BURST_SECONDS. What
exceeds that, or the limits of waiting reads, raises Compacted (410 for the client): the client lists again, as upstream's do
from each revision that its watch cache no longer has.

A watch reads again when its client has received what was read before; in between it has neither a place nor a stream of
etcd. A read that has begun keeps its place until it ends, also if its client leaves: a thread cannot be interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable

from control.storage.store import Batch, Compacted, Event, Store, Unavailable
from kube.fair_places import FairPlaces, NoPlace
from kube.rate import Rate

log = logging.getLogger(__name__)

PLACES, SHARED_PLACES = 1, 8
"""Reads at a time: in this process's file; of etcd, which is mostly waited for."""
MOST_WAITING, LONGEST_WAIT = 256, 30.0
"""Waiting reads of one user, as many as a client of all kinds has watches, and seconds after which a read is given up."""
SHARE, BURST_SECONDS = 0.2, 10.0
"""Share of all time of one user's reads, and seconds that they may take at once."""
READ_SECONDS = 30.0
"""Timeout of a read that has its place."""
SLICE_SECONDS = 1.0
"""Seconds since its first changes after which a read ends, also if all were others': an engine may pass over these."""
EVENTS, BYTES = 500, 4 << 20
"""Changes, or bytes of their values, after which a read ends."""


class HistoryReads:
    """The reads of one store. `now` returns seconds that never go back."""

    def __init__(self, places: int = PLACES, now: Callable[[], float] = time.monotonic) -> None:
        self._places = FairPlaces(places, max(1, places // 2), MOST_WAITING, LONGEST_WAIT)
        self._rate, self._now = Rate(BURST_SECONDS, SHARE, LONGEST_WAIT), now
        self._reading = set[asyncio.Task[Batch]]()

    async def read(self, store: Store, owner: str, prefix: str, after: int, until: int) -> Batch:
        """Return the next changes, with previous states, and the revision up to which they are all, finally `until` or later.

        Raises Compacted, also if the owner reads too much, and Unavailable.
        """
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._places.place(owner))
                if delay := self._rate.delay(owner, self._now()):
                    raise NoPlace(f"old changes were read for too long; the next ones can be in {delay:.1f} s")
            except NoPlace as error:
                log.debug("a watch of %s from revision %d is refused: %s", owner, after, error)
                raise Compacted(after, until) from error
            reading = asyncio.create_task(self._read(store, owner, prefix, after, until, stack.pop_all()))
            self._reading.add(reading)
            reading.add_done_callback(self._end)
        return await asyncio.shield(reading)

    async def _read(
        self, store: Store, owner: str, prefix: str, after: int, until: int, place: contextlib.AsyncExitStack
    ) -> Batch:
        start = self._now()
        try:
            async with place, asyncio.timeout(READ_SECONDS):
                return await self._changes(store, prefix, after, until)
        except TimeoutError as error:
            raise Unavailable(f"old changes could not be read within {READ_SECONDS:g} s") from error
        finally:
            self._rate.charge(owner, self._now() - start, self._now())

    async def _changes(self, store: Store, prefix: str, after: int, until: int) -> Batch:
        """Return the next changes with a prefix, and the revision up to which they are all."""
        found, size, end = list[Event](), 0, math.inf
        async with contextlib.aclosing(store.watch(prefix, after, previous=True)) as history:
            history.request_progress()
            async for batch in history:
                found += batch.events
                size += sum(
                    len(each.value) + (len(each.previous.value) if each.previous else 0) for each in batch.events
                )
                if batch.revision >= until or len(found) >= EVENTS or size >= BYTES or self._now() >= end:
                    return Batch(found, batch.revision)
                if batch.revision > after:
                    end = min(end, self._now() + SLICE_SECONDS)
                history.request_progress()
        raise Unavailable("the store is closed")

    def _end(self, reading: asyncio.Task[Batch]) -> None:
        self._reading.discard(reading)
        if not reading.cancelled():
            reading.exception()  # nobody else requests it if the client has left

    async def close(self) -> None:
        """Cancel all reads."""
        for reading in tuple(self._reading):
            reading.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
