"""Bounded record of the decisions of one process about objects: changes, refusals, attempts.

`wherry why` reads it through the API. Entries are made by the code that decides, as it decides: they have what events and logs
leave out (refused requests, the reasons of each node, changes by admission). The oldest entries of the namespaces with the most
are dropped when all take more than the limit. Clients write some of the texts: each is cut, and counted by the memory it takes.

An entry is kept as one block of memory, its encoded form, and decoded when it is read: as objects it would take twice the
memory, in eight blocks that stay among those that are freed after a load, whose pages they keep in use.
"""

from __future__ import annotations

import functools
import heapq
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from kube.bounded_cache import bounded_cache
from kube.clock import SYSTEM, Clock, parse_time
from kube.serialize import readable
from kube.tracing import spans

PATH = "/wherry/v1/journal"
"""Path of the API that answers entries."""
LIMIT_BYTES = 20 << 20
DENIED = "(denied)"
"""Namespace of the requests of those who have no part in the namespace that they name, by `denied_name`."""
MIRROR_OF = "kubernetes.io/config.hash"
"""Annotation of a static pod's object: the UID that its agent has for it."""
DENIED_PART = 16
"""Divisor of the limit for all of these together: users without any permission decide how many there are."""
ENTRY_BYTES, OBJECT_BYTES, RING_BYTES = 68, 240, 1700
"""Memory of an entry without its encoded form, of an object with entries, and of a namespace."""
PAGE_BYTES, SHOWN_BYTES = 1 << 20, 240
"""Size of a page, and of an entry in it without its encoded form: it limits the number of entries too."""
LONGEST_TEXT, LONGEST_NAME = 2048, 253
"""Characters of a text and of a name, after which they are cut: no object has a longer name."""
BLOCK = 500
"""Entries of a block, when those of a namespace are gone through."""
MOST_LISTED = 64
"""Entries of an object that are kept in a list."""
MOST_BYTES = 32 << 10
"""Size of an entry's encoded form: details that make it larger are left out."""


@functools.lru_cache(1024)
def kind_key(group: str, kind: str) -> str:
    """Return the key of a kind of objects."""
    return f"{kind}.{group}"


@bounded_cache(1024)
def resource_key(group: str, plural: str) -> str:
    """Return the key of a kind of which only the resource's name is known; clients may write any."""
    return f"/{plural}.{group}"


def denied_name(namespace: str, name: str) -> str:
    """Return the name by which denied requests for an object are recorded."""
    return f"{namespace}/{name}" if namespace else name


class Entry(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A decision: `actor` did at `time` (seconds since 1970) what `text` says with the object.

    revision: the one that the decision is about or has made. trace: ID of the OpenTelemetry trace. details: more, as JSON data.
    """

    time: float
    actor: str
    text: str
    uid: str = ""
    revision: int = 0
    trace: str = ""
    details: Mapping[str, Any] | None = None


class _Time(msgspec.Struct):
    time: float


class Page(msgspec.Struct, rename="camel", omit_defaults=True):
    """The API's answer: entries, the oldest first, and the time since which there is an entry for everything.

    not_known: what is missing and why.
    """

    entries: list[Entry]
    complete_since: float
    not_known: list[str] = msgspec.field(default_factory=list)


def begin_of(entries: Sequence[Entry], metadata: Mapping[str, Any]) -> float:
    """Return the time from which entries are about an object: its first entry, or the end of the second of its creation."""
    created = parse_time(metadata["creationTimestamp"]).timestamp()
    uids = _uids(metadata)
    return min([created + 1, *(each.time for each in entries if each.uid and each.uid in uids)])


def _uids(metadata: Mapping[str, Any]) -> tuple[Any, Any]:
    mirrored = (metadata.get("annotations") or {}).get(MIRROR_OF, "")
    return metadata.get("uid"), mirrored if "-" not in mirrored else ""


def of_present(entries: Sequence[Entry], metadata: Mapping[str, Any]) -> list[Entry]:
    """Return the entries about the present object of a name, of those about all objects that have had it.

    An agent has another UID for a static pod than the API: `MIRROR_OF`. Whoever creates a pod may write any there, so that
    one with a dash, as the API's own have, does not count: it may be a former pod's.

    One without a UID, or with the name for one (events about nodes), is about it if it is younger. Times of creation are
    whole seconds: in the first one, it is younger if it follows an entry with the UID.
    """
    uids, names = _uids(metadata), ("", metadata.get("name"))
    begin = begin_of(entries, metadata)
    return [each for each in entries if (each.uid and each.uid in uids) or (each.uid in names and each.time >= begin)]


Encoded = tuple[str, str, bytes]
"""The key of an object's kind, its name, and an encoded entry about it."""
_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Entry)
_times = msgspec.msgpack.Decoder(_Time)


def decoded(data: bytes) -> Entry:
    """Return an entry from its encoded form."""
    return _decoder.decode(data)


def time_of(data: bytes) -> float:
    """Return the time of an encoded entry."""
    return _times.decode(data).time


def _encoded(entry: Entry) -> bytes:
    """Return an entry's encoded form, without details that are too large or have characters that UTF-8 does not have.

    It is a copy: what the encoder returns is in a block of up to twice its size.
    """
    data = bytearray()
    try:
        _encoder.encode_into(entry, data)
    except UnicodeEncodeError:
        data.clear()
    if not data or len(data) > MOST_BYTES:
        _encoder.encode_into(msgspec.structs.replace(entry, details=None), data)
    return bytes(data)


class _Object:
    """An object's key and name, and its encoded entries, the oldest first."""

    __slots__ = ("about", "entries")

    def __init__(self, about: tuple[str, str]) -> None:
        self.about = about
        self.entries: list[bytes] | deque[bytes] = []

    def add(self, entry: bytes) -> None:
        """Add an entry. Most objects have few: a deque takes 700 bytes more, and of many the first is removed at once."""
        self.entries.append(entry)
        if len(self.entries) == MOST_LISTED:
            self.entries = deque(self.entries)


class _Ring:
    """The entries of one namespace, by object, and in the order of all entries: `order` has the object of each of `encoded`."""

    __slots__ = ("added", "bytes", "dropped", "encoded", "objects", "order")

    def __init__(self, size: int) -> None:
        self.objects: dict[tuple[str, str], _Object] = {}
        self.order: deque[_Object] = deque()
        self.encoded: deque[bytes] = deque()
        self.added = 0
        self.bytes = size
        self.dropped = 0.0
        """Time of the newest entry that was dropped."""


class Journal:
    """The entries of a process. `limit` is in bytes, for all namespaces together."""

    def __init__(self, clock: Clock, limit: int = LIMIT_BYTES) -> None:
        self._limit, self._room = limit, limit - limit // 256
        """At the limit, entries are dropped until so much is used: several at once take less time than each alone."""
        # time.time is ten times as fast as a datetime.
        self._seconds = time.time if clock is SYSTEM else lambda: clock.now().timestamp()
        self._rings: OrderedDict[str, _Ring] = OrderedDict()
        self.bytes = 0
        self.began = self._seconds()

    def record(
        self,
        key: str,
        namespace: str,
        name: str,
        actor: str,
        text: str,
        *,
        uid: str = "",
        revision: int = 0,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Add an entry about an object; `key` is its kind's."""
        given = f"{key}{namespace}{name}{actor}{text}{uid}"
        if len(given) > LONGEST_NAME or not given.isascii():  # few entries are long or have something to replace
            key, namespace, name, actor, uid = (_cut(each, LONGEST_NAME) for each in (key, namespace, name, actor, uid))
            text = _cut(text, LONGEST_TEXT)
        entry = _encoded(Entry(self._seconds(), actor, text, uid, revision, spans.trace_id(), details))
        ring = self._rings.get(namespace)
        if ring is None:
            ring = self._rings[namespace] = _Ring(RING_BYTES + sys.getsizeof(namespace))
            self.bytes += ring.bytes
        added = _entry_bytes(entry)
        known = ring.objects.get((key, name))
        if known is None:
            about = key, name
            known = ring.objects[about] = _Object(about)
            added += _object_bytes(about)
        known.add(entry)
        ring.order.append(known)
        ring.encoded.append(entry)
        ring.added += 1
        ring.bytes += added
        self.bytes += added
        if namespace == DENIED and ring.bytes > self._limit / DENIED_PART:
            self._drop_oldest(ring, ring.bytes - self._limit / DENIED_PART)
        if self.bytes > self._limit:
            while self.bytes > self._room:
                self._drop()

    def _drop(self) -> None:
        """Drop the oldest entries of a namespace that has more than its share, until it has not or there is room."""
        share = self._room / len(self._rings)
        while True:
            namespace, ring = next(iter(self._rings.items()))
            if ring.bytes > share or not ring.order or len(self._rings) == 1:
                break
            self._rings.move_to_end(namespace)
        if not ring.order:  # a namespace whose entries are all dropped
            del self._rings[namespace]
            self.bytes -= ring.bytes
            self.began = max(self.began, ring.dropped)
        else:
            most = self.bytes - self._room
            self._drop_oldest(ring, min(most, ring.bytes - share) if len(self._rings) > 1 else most)

    def _drop_oldest(self, ring: _Ring, size: float) -> None:
        """Drop a namespace's oldest entries, at least one, until they had this size."""
        dropped, entry = 0, b""
        while ring.order and (not dropped or dropped < size):
            oldest = ring.order.popleft()
            entry = ring.encoded.popleft()
            del oldest.entries[0]
            dropped += _entry_bytes(entry)
            if not oldest.entries:
                del ring.objects[oldest.about]
                dropped += _object_bytes(oldest.about)
        ring.bytes -= dropped
        self.bytes -= dropped
        ring.dropped = _decoder.decode(entry).time

    def about(self, key: str, namespace: str, name: str) -> Iterator[tuple[int, Entry]]:
        """Yield the entries about an object with their memory, the newest first, also those of earlier objects of its name."""
        ring = self._rings.get(namespace)
        known = ring.objects.get((key, name)) if ring is not None else None
        for entry in reversed(known.entries) if known is not None else ():
            yield _entry_bytes(entry), _decoder.decode(entry)

    def namespaces(self) -> list[str]:
        """Return the namespaces that have entries."""
        return list(self._rings)

    def newest(self, namespace: str) -> Iterator[Sequence[Encoded]]:
        """Yield the entries of a namespace in blocks, the newest first; entries may be added and dropped between two blocks."""
        ring = self._rings.get(namespace)
        passed, added = 0, ring.added if ring is not None else 0
        while ring is not None:
            begin = passed + ring.added - added
            order = islice(reversed(ring.order), begin, begin + BLOCK)
            encoded = islice(reversed(ring.encoded), begin, begin + BLOCK)
            block = [(*known.about, data) for known, data in zip(order, encoded, strict=True)]
            if not block:
                return
            passed += len(block)
            yield block

    def complete_since_all(self) -> float:
        """Return the time since which the journal has every entry of all namespaces."""
        return max([self.began, *(ring.dropped for ring in self._rings.values())])

    def page(self, keys: Sequence[str], namespace: str, name: str) -> Page:
        """Return the newest entries about an object whose kind has these keys, the oldest first.

        The work is limited as the page is: older entries are not gone through.
        """
        since, left, found = self.complete_since(namespace), PAGE_BYTES, list[Entry]()
        known = [self.about(key, namespace, name) for key in keys]
        for cost, entry in heapq.merge(*known, key=lambda each: each[1].time, reverse=True):
            left -= _shown(cost, entry)
            if left < 0:
                since = max(since, entry.time)
                break
            found.append(entry)
        return Page(found[::-1], since)

    def complete_since(self, namespace: str) -> float:
        """Return the time since which the journal has every entry of a namespace."""
        ring = self._rings.get(namespace)
        return max(self.began, ring.dropped) if ring is not None else self.began


def _entry_bytes(entry: bytes) -> int:
    return ENTRY_BYTES + len(entry)


def _object_bytes(about: tuple[str, str]) -> int:
    return OBJECT_BYTES + sys.getsizeof(about[0]) + sys.getsizeof(about[1])


def _cut(text: str, most: int) -> str:
    """Return a text of Unicode characters, of which at most so many."""
    if len(text) > most:
        text = text[:most] + "..."
    return text if text.isascii() else readable(text)


def _shown(cost: int, entry: Entry) -> int:
    """Return what an entry takes of a page: JSON has six characters for one that cannot be printed."""
    return cost + SHOWN_BYTES + (0 if entry.text.isprintable() else 5 * len(entry.text))
