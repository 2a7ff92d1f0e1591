"""Compaction of the store every five minutes, up to the revision of five minutes ago; earlier if there is too much history.

A store that nobody writes to is not compacted, and checked less and less often, so that it is not the compactor that wakes an
idle machine.

The interval is upstream's (--etcd-compaction-interval=5m): a client that was disconnected for less can resume its watch and
finish a paged list. The compactor works with any engine: it records the current revision with its time, and calls the store's
`compact`. The record is in the store; otherwise a server that is restarted more often than every five minutes would never
compact.
"""

from __future__ import annotations

import contextlib
import logging

import msgspec

from control.storage.store import Compacted, Store, StoreError
from kube.clock import SYSTEM, Clock

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 300.0
CHECK_SECONDS = 30.0
MAX_REVISIONS = 200_000
"""Maximum number of revisions, whatever their age: some hundred MB of pods."""

KEY = "/compaction"
"""Key of the record, outside of the resources (/registry/)."""


class Record(msgspec.Struct):
    """Revision that was current at a time, in seconds since 1970."""

    revision: int
    at: float


class Compactor:
    """Compacts the store, in one of the processes that share it (a second one only causes rejected requests)."""

    def __init__(self, store: Store, clock: Clock = SYSTEM, max_revisions: int = MAX_REVISIONS) -> None:
        self._store, self._clock, self._max = store, clock, max_revisions

    async def run(self) -> None:
        """Compact until cancelled."""
        then, since = await self._store.current_revision(), self._clock.monotonic()
        try:
            then, since = await self._resume(then, since)
        except StoreError as error:
            log.warning("the time of the next compaction is not known: %s", error)
        compacted = newest = recorded = 0
        pause = CHECK_SECONDS
        while True:
            await self._clock.sleep(pause)
            try:
                revision = await self._store.current_revision()
                pause = CHECK_SECONDS if revision != newest else min(2 * pause, INTERVAL_SECONDS)
                newest = revision
                if self._clock.monotonic() - since >= INTERVAL_SECONDS:
                    if then > compacted:
                        await self._compact(then)
                    compacted, since = then, self._clock.monotonic()
                    if revision != recorded:
                        then = revision
                        await self._record(revision)
                        newest = recorded = await self._store.current_revision()
                elif revision - await self._store.compacted_revision() > self._max:
                    await self._compact(revision - self._max // 2)
            except StoreError as error:
                log.warning("compaction failed and will be retried: %s", error)

    async def _resume(self, revision: int, now: float) -> tuple[int, float]:
        """Return the recorded revision and its time on this clock; `revision` and `now` without a record."""
        found = await self._store.get(KEY)
        if found is not None:
            with contextlib.suppress(msgspec.DecodeError):
                record = msgspec.json.decode(found.value, type=Record)
                age = self._clock.now().timestamp() - record.at
                # Meanwhile the wall clock may have been set, or the store restored.
                return min(record.revision, revision), now - min(max(age, 0.0), INTERVAL_SECONDS)
        await self._record(revision)
        return revision, now

    async def _record(self, revision: int) -> None:
        value = msgspec.json.encode(Record(revision, self._clock.now().timestamp()))
        found = await self._store.get(KEY)
        await (self._store.create(KEY, value) if found is None else self._store.update(KEY, value, found.revision))

    async def _compact(self, revision: int) -> None:
        if revision > 0:
            try:
                await self._store.compact(revision)
                log.info("compacted history up to revision %d", revision)
            except Compacted:
                log.debug("revision %d was compacted already", revision)
