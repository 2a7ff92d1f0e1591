"""A watch of the store in memory: it reads the log from its position on, and is woken by writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

from control.storage.memory_rows import CHUNK, Rows
from control.storage.store import Batch


class Source(Protocol):
    """The store that is watched."""

    def changes(self, prefix: str, after: int) -> tuple[Rows, int]:
        """Return the next rows with a prefix after a revision, and the revision up to which they are all. Raise Compacted."""
        ...

    def forget(self, watch: MemoryWatch) -> None:
        """End the notification of a watch."""
        ...


class MemoryWatch:
    """One watch (see `control.storage.store.Watch`)."""

    def __init__(self, store: Source, prefix: str, after: int, *, previous: bool) -> None:
        self._store, self._prefix, self._seen, self._previous = store, prefix, after, previous
        self._woken = asyncio.Event()
        self._woken.set()
        self._progress = self._closed = False

    def wake(self, key: str) -> None:
        """Continue if a key that was written is one of this watch."""
        if key.startswith(self._prefix):
            self._woken.set()

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        while not self._closed:
            await self._woken.wait()
            if self._closed:
                break
            rows, upto = self._store.changes(self._prefix, self._seen)
            upto = max(upto, self._seen)
            if rows:
                self._seen = upto
                if len(rows) < CHUNK:
                    self._progress = False  # this batch has the current revision
                return Batch([row.event(previous=self._previous) for row in rows], upto)
            self._woken.clear()
            if self._progress:
                self._progress, self._seen = False, upto
                return Batch((), upto)
        raise StopAsyncIteration

    def request_progress(self) -> None:
        self._progress = True
        self._woken.set()

    async def aclose(self) -> None:
        self._closed = True
        self._store.forget(self)
        self._woken.set()
