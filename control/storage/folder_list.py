"""All objects of a folder in the watch cache, shared by the lists of the folder until one of the resource's objects changes.

Most lists repeat an earlier one, and looking up hundreds of objects and joining them takes a third of a list's time. So the
bytes that a list in the plain form has between its head and its tail are cached too, for the latest lists.
"""

from __future__ import annotations

from collections.abc import Iterable

from control.storage.entry import Entry, Recent

KEPT_LISTS, KEPT_BYTES = 64, 4 << 20
"""Maximum number of lists whose bytes are cached, and of these bytes."""


class _Joined:
    """The cached bytes of a list. The latest ones are held apart from their lists, whose objects may be gone."""

    __slots__ = ("items", "typed")

    def __init__(self, typed: bytes, items: bytes) -> None:
        self.typed = typed
        self.items: bytes | None = items

    def drop(self) -> None:
        self.items = None


class FolderList(list[Entry]):
    """Entries in key order; read-only, because others have the same list."""

    __slots__ = ("_ended", "_joined")

    def __init__(self, entries: Iterable[Entry]) -> None:
        super().__init__(entries)
        self._joined: _Joined | None = None
        self._ended = False

    def items(self, typed: bytes) -> bytes | None:
        """Return the cached items, made of objects without what `typed` has; None if there are none."""
        kept = self._joined
        return kept.items if kept is not None and kept.typed == typed else None

    def cache_items(self, typed: bytes, items: bytes) -> None:
        """Cache the joined items while the list is among the latest."""
        if not self._ended and (self._joined is None or self._joined.items is None):
            self._joined = _Joined(typed, items)
            _lists.add(self._joined, len(items))

    def end(self) -> None:
        """Cache nothing any more: an object of the resource has changed."""
        self._ended = True
        if self._joined is not None:
            self._joined.drop()


_lists = Recent(_Joined.drop, lambda: (KEPT_LISTS, KEPT_BYTES))
