"""Watch events in other forms than the plain one, made once for all watchers that want the same form.

A thousand watchers hear of a change in the same round of the event loop: to write a table of an object of a megabyte takes
milliseconds. What was written is kept for a moment only, since tables have ages in them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

from control.storage.entry import Entry

SECONDS = 1.0
MOST_BYTES = 4 << 20
MOST_EVENTS = 256


class SharedEvents:
    """The newest events that were written."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, Hashable], tuple[Entry, float, bytes]] = OrderedDict()
        self._size = 0

    def get(self, entry: Entry, form: Hashable, now: float, write: Callable[[], bytes]) -> bytes:
        """Return what `write` returned for an entry in a form less than SECONDS before `now`, or what it returns."""
        key = (id(entry), form)
        found = self._kept.get(key)
        if found is not None and found[0] is entry and 0 <= now - found[1] < SECONDS:
            return found[2]
        data = write()
        if found is not None:
            self._drop(key)
        self._kept[key] = (entry, now, data)
        self._size += len(data)
        while self._size > MOST_BYTES or len(self._kept) > MOST_EVENTS:
            self._drop(next(iter(self._kept)))
        return data

    def _drop(self, key: tuple[int, Hashable]) -> None:
        self._size -= len(self._kept.pop(key)[2])
