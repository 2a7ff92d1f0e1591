"""An object in the watch cache: its bytes, with labels, selectable fields and a decoded view that are computed on demand.

Most objects are only joined into lists or sent to watchers, as bytes. Decoded views are many times larger, so only the most
recently used ones are cached; they are shared, hence read-only. Protobuf forms are cached in the same way once they have
been requested. The values that selectors compare are decoded without the rest of the object, and cached.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from control.storage import codec, lazy_json
from kube import bounded_cache

Fields = Callable[[dict[str, Any]], dict[str, str]]
Predicate = Callable[["Entry"], bool]
T = TypeVar("T")

KEPT_VIEWS, KEPT_VIEWS_BYTES = 1024, 8 << 20
"""Maximum number of cached views, and bytes of their JSON. A view needs several times as much memory."""
KEPT_WIRE_BYTES = 4 << 20


class Recent(Generic[T]):
    """LRU list of the entries, or lists of entries, that cache a derived form; it is dropped from the oldest beyond a
    count and a size.

    The event loop and the thread for large objects add entries.
    """

    def __init__(self, drop: Callable[[T], None], most: Callable[[], tuple[int, int]]) -> None:
        self._drop, self._most = drop, most
        self._lock = threading.Lock()
        self._entries: deque[tuple[T, int]] = deque()
        self._bytes = 0
        bounded_cache.on_forget(self.forget)

    def add(self, entry: T, size: int) -> None:
        with self._lock:
            self._entries.append((entry, size))
            self._bytes += size
            self._shrink(*self._most())

    def forget(self) -> None:
        """Drop the derived forms of all entries."""
        with self._lock:
            self._shrink(0, 0)

    def _shrink(self, entries: int, size: int) -> None:
        while self._entries and (len(self._entries) > entries or self._bytes > size):
            entry, freed = self._entries.popleft()
            self._bytes -= freed
            self._drop(entry)
        if not self._entries:
            self._bytes = 0  # a stopped thread may have added an entry without its bytes (event_loop/time_limit.py)


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
        """The same state in other versions of its kind, by the object that converted it; None without conversion."""
        self.wire: bytes | None = None
        """The cached protobuf form (`cache_protobuf`)."""

    @property
    def obj(self) -> dict[str, Any]:
        """The object as a shared, read-only dict; `codec.decode(entry.data)` returns one that may be changed."""
        obj = self._obj
        if obj is None:
            obj = self._obj = codec.decode(self.data)
            _views.add(self, len(self.data))
        return obj

    def cache_protobuf(self, wire: bytes) -> None:
        """Cache the protobuf form while it is among the most recently used ones."""
        if self.wire is None:
            self.wire = wire
            _wires.add(self, len(wire))

    @property
    def unread(self) -> int:
        """Bytes that a comparison with a selector may have to parse, be it by labels or by fields."""
        read = self._obj is not None or (self._labels is not None and self._fields is not None)
        return 0 if read else len(self.data)

    @property
    def undecoded(self) -> int:
        """Bytes that `obj` has to decode: 0 if it is cached."""
        return len(self.data) if self._obj is None else 0

    @property
    def labels(self) -> dict[str, str]:
        if self._labels is None:
            self._labels = self.head().labels or _NONE
        return self._labels

    @property
    def fields(self) -> dict[str, str]:
        """Selectable fields by path; metadata.name and metadata.namespace always exist."""
        if self._fields is None:
            obj = self.parts()
            metadata = obj.get("metadata") or _NONE
            names = {"metadata.name": metadata.get("name", ""), "metadata.namespace": metadata.get("namespace", "")}
            self._fields = {**names, **self._fields_of(obj)}
        return self._fields

    def head(self) -> lazy_json.PartialMetadata:
        """Return the object's name, namespace and labels."""
        obj = self._obj  # read once: another thread may drop it
        return lazy_json.partial_metadata(self.data) if obj is None else lazy_json.metadata_of(obj)

    def parts(self) -> dict[str, Any]:
        """Return the object as a read-only dict for access by name, which decodes only the values that are accessed."""
        obj = self._obj
        if obj is not None:
            return obj
        return self.obj if len(self.data) < lazy_json.LAZY_BYTES else lazy_json.lazy_dict(self.data)

    def at(self, revision: int) -> Entry:
        """Return the same state with another revision, for the event of a deletion."""
        entry = Entry(self.key, revision, codec.with_revision(self.data, revision), self._fields_of)
        entry._labels, entry._fields = self._labels, self._fields
        return entry

    def forget(self, fields_of: Fields) -> None:
        """Drop the cached fields and versions, and use another function for selectable fields."""
        self._fields_of, self._fields, self.views = fields_of, None, None

    def in_version(self, data: bytes) -> Entry:
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


_views = Recent(Entry._drop_view, lambda: (KEPT_VIEWS, KEPT_VIEWS_BYTES))
_wires = Recent(Entry._drop_wire, lambda: (KEPT_WIRE_BYTES, KEPT_WIRE_BYTES))
