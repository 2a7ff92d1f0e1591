"""One object as the watch cache holds it: its bytes, with labels, selectable fields and a decoded view made on demand.

Most objects are only ever joined into lists or sent to watchers, as bytes. Decoded views are many times larger, so only
the most recently used ones are kept; they are shared, hence read-only. So it is with the protobuf form, which nobody pays
for who does not ask for it. What selectors compare is read without the rest of the object, and kept.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from control.storage import codec, partial
from kube import remembering

Fields = Callable[[dict[str, Any]], dict[str, str]]
Predicate = Callable[["Entry"], bool]

KEPT_VIEWS, KEPT_VIEWS_BYTES = 1024, 8 << 20
"""Decoded views: objects, and bytes of their JSON. The views take several times as much."""
KEPT_WIRE_BYTES = 4 << 20


class _Recent:
    """The entries that something was made of most recently; it is dropped from older ones beyond a count and a size.

    The event loop adds to them, and so does the thread for large objects.
    """

    def __init__(self, drop: Callable[[Entry], None], most: Callable[[], tuple[int, int]]) -> None:
        self._drop, self._most = drop, most
        self._lock = threading.Lock()
        self._entries: deque[tuple[Entry, int]] = deque()
        self._bytes = 0
        remembering.on_forget(self.forget)

    def add(self, entry: Entry, size: int) -> None:
        with self._lock:
            self._entries.append((entry, size))
            self._bytes += size
            self._shrink(*self._most())

    def forget(self) -> None:
        """Drop what was made of all of them."""
        with self._lock:
            self._shrink(0, 0)

    def _shrink(self, entries: int, size: int) -> None:
        while self._entries and (len(self._entries) > entries or self._bytes > size):
            entry, freed = self._entries.popleft()
            self._bytes -= freed
            self._drop(entry)


_NONE: dict[str, str] = {}


class Entry:
    """An object at a revision; `data` is its JSON with resourceVersion."""

    __slots__ = ("_fields", "_fields_of", "_labels", "_obj", "data", "key", "revision", "views", "wire")

    def __init__(self, key: str, revision: int, data: bytes, fields_of: Fields) -> None:
        self.key, self.revision, self.data = key, revision, data
        self._fields_of = fields_of
        self._obj: dict[str, Any] | None = None
        self._labels: dict[str, str] | None = None
        self._fields: dict[str, str] | None = None
        self.views: dict[object, Entry | None] | None = None
        """The same state in other versions of its kind, by who made them; None: it is shown as it is."""
        self.wire: bytes | None = None
        """The protobuf form as whoever made it keeps it (`keep_wire`)."""

    @property
    def obj(self) -> dict[str, Any]:
        """The object as a dict that nobody may change; `codec.decode(entry.data)` makes one to change."""
        obj = self._obj
        if obj is None:
            obj = self._obj = codec.decode(self.data)
            _views.add(self, len(self.data))
        return obj

    def keep_wire(self, wire: bytes) -> None:
        """Keep the protobuf form for others, for as long as it is among the most recent ones."""
        if self.wire is None:
            self.wire = wire
            _wires.add(self, len(wire))

    @property
    def unread(self) -> int:
        """Bytes that a comparison with a selector may have to go through: it is not known which of the two it reads."""
        read = self._obj is not None or (self._labels is not None and self._fields is not None)
        return 0 if read else len(self.data)

    @property
    def undecoded(self) -> int:
        """Bytes that `obj` has to decode: none where that is kept."""
        return len(self.data) if self._obj is None else 0

    @property
    def labels(self) -> dict[str, str]:
        if self._labels is None:
            self._labels = self.head().labels or _NONE
        return self._labels

    @property
    def fields(self) -> dict[str, str]:
        """Selectable fields by path; metadata.name and metadata.namespace are always there."""
        if self._fields is None:
            obj = self.parts()
            metadata = obj.get("metadata") or _NONE
            names = {"metadata.name": metadata.get("name", ""), "metadata.namespace": metadata.get("namespace", "")}
            self._fields = {**names, **self._fields_of(obj)}
        return self._fields

    def head(self) -> partial.Head:
        """Return the object's name, namespace and labels."""
        obj = self._obj  # read once: another thread may drop it
        return partial.head(self.data) if obj is None else partial.head_of(obj)

    def parts(self) -> dict[str, Any]:
        """Return the object as a dict that nobody may change; its values are asked for by name, and few of them decoded."""
        obj = self._obj
        if obj is not None:
            return obj
        return self.obj if len(self.data) < partial.WHOLE else partial.lazily(self.data)

    def at(self, revision: int) -> Entry:
        """Return the same state under another revision, as deletions are reported."""
        entry = Entry(self.key, revision, codec.with_revision(self.data, revision), self._fields_of)
        entry._labels, entry._fields = self._labels, self._fields
        return entry

    def forget(self, fields_of: Fields) -> None:
        """Forget what was made of the object, which another rule for its fields would make differently."""
        self._fields_of, self._fields, self.views = fields_of, None, None

    def shown_as(self, data: bytes) -> Entry:
        """Return the same state in another version of its kind."""
        entry = Entry(self.key, self.revision, data, self._fields_of)
        entry._labels, entry._fields = self._labels, self._fields
        return entry

    def __repr__(self) -> str:
        return f"Entry({self.key!r}, {self.revision})"

    def _drop_view(self) -> None:
        self._obj = None

    def _drop_wire(self) -> None:
        self.wire = None


_views = _Recent(Entry._drop_view, lambda: (KEPT_VIEWS, KEPT_VIEWS_BYTES))
_wires = _Recent(Entry._drop_wire, lambda: (KEPT_WIRE_BYTES, KEPT_WIRE_BYTES))
