"""Bounded record of the decisions of one process about objects: changes, refusals, attempts.

`wherry why` reads it through the API. Entries are made by the code that decides, as it decides: they have what events and logs
leave out (refused requests, the reasons of each node, changes by admission). The oldest entries of the namespaces with the most
are dropped when all take more than the limit. Clients write some of the texts: each is cut, and counted by the memory it takes.
What an entry has beyond its text is kept as JSON, whose size is known and which refers to nothing else in the process.
"""

from __future__ import annotations

import functools
import heapq
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kube.clock import SYSTEM, Clock, parse_time
from kube.serialize import encode_readable, readable
from kube.tracing import spans

PATH = "/wherry/v1/journal"
"""Path of the API that answers entries."""
LIMIT_BYTES = 20 << 20
DENIED = "(denied)"
"""Namespace of the requests of those who have no part in the namespace that they name, by `denied_name`."""
MIRROR_OF = "kubernetes.io/config.hash"
"""Annotation of a static pod's object: the UID that its agent has for it."""
ENTRY_BYTES, OBJECT_BYTES, RING_BYTES = 300, 900, 1000
"""Memory of an entry without its texts, of an object with entries, and of a namespace."""
TEXT_BYTES, DETAILS_BYTES = 64, 150
"""Memory of a text without its characters, and of details without their JSON."""
SHORT_BYTES = ENTRY_BYTES + 3 * TEXT_BYTES
"""Memory of an entry without the characters of its actor, text and UID."""
PAGE_BYTES = 1 << 20
"""Memory of the entries of a page."""
LONGEST_TEXT, LONGEST_NAME = 2048, 253
"""Characters of a text and of a name, after which they are cut: no object has a longer name."""
MOST_DETAILS = 32 << 10
"""Bytes of the details of an entry; larger ones are left out."""
NO_DETAILS = msgspec.Raw(b"{}")


@functools.lru_cache(1024)
def kind_key(group: str, kind: str) -> str:
    """Return the key of a kind of objects."""
    return f"{kind}.{group}"


def resource_key(group: str, plural: str) -> str:
    """Return the key of a kind of which only the resource's name is known."""
    return f"/{plural}.{group}"


def denied_name(namespace: str, name: str) -> str:
    """Return the name by which denied requests for an object are recorded."""
    return f"{namespace}/{name}" if namespace else name


class Entry(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A decision: `actor` did at `time` (seconds since 1970) what `text` says with the object.

    revision: the one that the decision is about or has made. trace: ID of the OpenTelemetry trace. details: a JSON object.
    """

    time: float
    actor: str
    text: str
    uid: str = ""
    revision: int = 0
    trace: str = ""
    details: msgspec.Raw = NO_DETAILS


class Page(msgspec.Struct, rename="camel", omit_defaults=True):
    """The API's answer: entries, the oldest first, and the time since which there is an entry for everything.

    not_known: what is missing and why.
    """

    entries: list[Entry]
    complete_since: float
    not_known: list[str] = msgspec.field(default_factory=list)


def of_present(entries: Sequence[Entry], metadata: Mapping[str, Any]) -> list[Entry]:
    """Return the entries about the present object of a name, of those about all objects that have had it.

    An agent has another UID for a static pod than the API: `MIRROR_OF`.

    One without a UID, or with the name for one (events about nodes), is about it if it is younger. Times of creation are
    whole seconds: in the first one, it is younger if it follows an entry with the UID.
    """
    uids = metadata.get("uid"), (metadata.get("annotations") or {}).get(MIRROR_OF)
    names = "", metadata.get("name")
    created = parse_time(metadata["creationTimestamp"]).timestamp()
    begin = min([created + 1, *(each.time for each in entries if each.uid and each.uid in uids)])
    return [each for each in entries if (each.uid and each.uid in uids) or (each.uid in names and each.time >= begin)]


class _Ring:
    """The entries of one namespace, by object, and the objects in the order of all entries."""

    __slots__ = ("bytes", "dropped", "objects", "order")

    def __init__(self, size: int) -> None:
        self.objects: dict[tuple[str, str], deque[tuple[int, Entry]]] = {}
        self.order: deque[tuple[str, str]] = deque()
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
        trace, raw = spans.trace_id(), NO_DETAILS
        if len(given) <= LONGEST_NAME and given.isascii():  # most entries: neither long nor with anything to replace
            cost = SHORT_BYTES + len(actor) + len(text) + len(uid) + len(trace)
        else:
            key, namespace, name = _cut(key, LONGEST_NAME), _cut(namespace, LONGEST_NAME), _cut(name, LONGEST_NAME)
            actor, text, uid = _cut(actor, LONGEST_NAME), _cut(text, LONGEST_TEXT), _cut(uid, LONGEST_NAME)
            cost = ENTRY_BYTES + _size(actor) + _size(text) + _size(uid) + len(trace)
        if details:
            data = _encoded(details)
            raw = msgspec.Raw(data)
            cost += DETAILS_BYTES + len(data)
        ring = self._rings.get(namespace)
        if ring is None:
            ring = self._rings[namespace] = _Ring(RING_BYTES + _size(namespace))
            self.bytes += ring.bytes
        about = key, name
        entries, added = ring.objects.get(about), cost
        if entries is None:
            entries = ring.objects[about] = deque()
            added += _object_bytes(about)
        entries.append((cost, Entry(self._seconds(), actor, text, uid, revision, trace, raw)))
        ring.order.append(about)
        ring.bytes += added
        self.bytes += added
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
            return
        dropped, most = 0, self.bytes - self._room
        least = ring.bytes - share if len(self._rings) > 1 else most
        while ring.order and dropped < most and dropped <= least:
            about = ring.order.popleft()
            entries = ring.objects[about]
            cost, entry = entries.popleft()
            if not entries:
                del ring.objects[about]
                cost += _object_bytes(about)
            dropped += cost
            ring.dropped = entry.time
        ring.bytes -= dropped
        self.bytes -= dropped

    def about(self, key: str, namespace: str, name: str) -> Sequence[tuple[int, Entry]]:
        """Return the entries about an object with their memory, the oldest first, also those of earlier objects of its name."""
        ring = self._rings.get(namespace)
        return ring.objects.get((key, name), ()) if ring is not None else ()

    def page(self, keys: Sequence[str], namespace: str, name: str) -> Page:
        """Return the newest entries about an object whose kind has these keys, the oldest first.

        The work is limited as the page is: older entries are not gone through.
        """
        since, left, found = self.complete_since(namespace), PAGE_BYTES, list[Entry]()
        for cost, entry in self._newest(keys, namespace, name):
            left -= _shown(cost, entry)
            if left < 0:
                since = max(since, entry.time)
                break
            found.append(entry)
        return Page(found[::-1], since)

    def _newest(self, keys: Sequence[str], namespace: str, name: str) -> Iterator[tuple[int, Entry]]:
        known = [reversed(self.about(key, namespace, name)) for key in keys]
        return known[0] if len(known) == 1 else heapq.merge(*known, key=lambda each: -each[1].time)

    def complete_since(self, namespace: str) -> float:
        """Return the time since which the journal has every entry of a namespace."""
        ring = self._rings.get(namespace)
        return max(self.began, ring.dropped) if ring is not None else self.began


def _object_bytes(about: tuple[str, str]) -> int:
    return OBJECT_BYTES + _size(about[0]) + _size(about[1])


def _cut(text: str, most: int) -> str:
    """Return a text of Unicode characters, of which at most so many."""
    if len(text) > most:
        text = text[:most] + "..."
    return text if text.isascii() else readable(text)


def _size(text: str) -> int:
    """Return the memory of a text, with that of its UTF-8, which Python keeps once the text has been encoded."""
    return TEXT_BYTES + len(text) if text.isascii() else sys.getsizeof(text) + 4 * len(text)


def _shown(cost: int, entry: Entry) -> int:
    """Return what an entry takes of a page: JSON has six characters for one that cannot be printed."""
    return cost if entry.text.isprintable() else cost + 5 * len(entry.text)


def _encoded(details: Mapping[str, Any]) -> bytes:
    data = encode_readable(details)
    return data if len(data) <= MOST_DETAILS else b'{"omittedBytes":%d}' % len(data)
