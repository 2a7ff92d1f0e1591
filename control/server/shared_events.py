"""Watch events in other forms than the plain one, made once for all watchers that want the same form.

A thousand watchers hear of a change in the same round of the event loop: to write a table of an object of a megabyte takes
milliseconds. What was written is kept for a moment only, since tables have ages in them. The object that it was made of is kept
with it, to tell it from others, and counts among its bytes: a row of a table is a few bytes of an object of a megabyte.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial

from control.event_loop import offload
from control.storage.entry import Entry
from kube import bounded_cache

SECONDS = 1.0
MOST_BYTES = 4 << 20
"""Bytes of events and of the objects that they were made of."""
MOST_EVENTS = 256


class SharedEvents:
    """The newest events that were written."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, Hashable], tuple[bytes, float, bytes]] = OrderedDict()
        """Objects, when their events were written, and these, by the objects' identities and by form; the oldest first."""
        self._size = 0
        self._under_way: dict[tuple[int, Hashable], tuple[bytes, asyncio.Task[bytes]]] = {}
        """Objects whose events the thread is writing, and the tasks that wait for it."""
        bounded_cache.on_forget(self._forget)

    def get(self, entry: Entry, form: Hashable, now: float, write: Callable[[], bytes]) -> bytes:
        """Return what `write` returned for an entry in a form less than SECONDS before `now`, or what it returns."""
        key = (id(entry.data), form)
        data = self._find(key, now)
        if data is None:
            data = write()
            self._keep(key, entry, now, data)
        return data

    async def get_apart(self, user: str, entry: Entry, form: Hashable, now: float, write: Callable[[], bytes]) -> bytes:
        """Return the same for a large object, whose event the thread encodes once, at the turn of the first user."""
        key = (id(entry.data), form)
        data = self._find(key, now)
        if data is not None:
            return data
        found = self._under_way.get(key)
        if found is None:
            task = asyncio.create_task(offload.read(user, write), name="watch event of a large object")
            found = self._under_way[key] = (entry.data, task)
            task.add_done_callback(partial(self._written, key, entry, now))
        return await asyncio.shield(found[1])

    def _written(self, key: tuple[int, Hashable], entry: Entry, now: float, task: asyncio.Task[bytes]) -> None:
        del self._under_way[key]
        if not task.cancelled() and task.exception() is None:
            self._keep(key, entry, now, task.result())

    def _find(self, key: tuple[int, Hashable], now: float) -> bytes | None:
        self._drop_old(now)
        found = self._kept.get(key)
        return found[2] if found is not None and 0 <= now - found[1] < SECONDS else None

    def _keep(self, key: tuple[int, Hashable], entry: Entry, now: float, data: bytes) -> None:
        if key in self._kept:
            self._drop(key)
        self._kept[key] = (entry.data, now, data)
        self._size += len(entry.data) + len(data)
        while self._size > MOST_BYTES or len(self._kept) > MOST_EVENTS:
            self._drop(next(iter(self._kept)))

    def _drop_old(self, now: float) -> None:
        while self._kept:
            key, (_, written, _) = next(iter(self._kept.items()))
            if now - written < SECONDS:
                return
            self._drop(key)

    def _drop(self, key: tuple[int, Hashable]) -> None:
        obj, _, event = self._kept.pop(key)
        self._size -= len(obj) + len(event)

    def _forget(self) -> None:
        self._kept.clear()
        self._size = 0
