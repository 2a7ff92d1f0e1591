"""Bounded record of the decisions of one process about objects: changes, refusals, attempts.

`wherry why` reads it through the API. Entries are made by the code that decides, as it decides: they have what events and logs
leave out (refused requests, the reasons of each node, changes by admission). The oldest entries of the namespaces with the most
are dropped when all take more than the limit. Clients write some of the texts: each is cut, and counted by the memory it takes.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kube.clock import Clock
from kube.tracing import spans

PATH = "/wherry/v1/journal"
"""Path of the API that answers entries."""
LIMIT_BYTES = 20 << 20
ENTRY_BYTES, OBJECT_BYTES, RING_BYTES = 300, 900, 1000
"""Memory of an entry without its texts, of an object with entries, and of a namespace."""
LONGEST_TEXT, LONGEST_NAME = 2048, 253
"""Characters of a text and of a name, after which they are cut: no object has a longer name."""


def kind_key(group: str, kind: str) -> str:
    """Return the key of a kind of objects."""
    return f"{kind}.{group}"


def resource_key(group: str, plural: str) -> str:
    """Return the key of a kind of which only the resource's name is known."""
    return f"/{plural}.{group}"


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


class Page(msgspec.Struct, rename="camel"):
    """The API's answer: entries, the oldest first, and the time since which there is an entry for everything."""

    entries: list[Entry]
    complete_since: float


class Listed(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An entry with its object, for lists over many objects: `resource`, the plural name, or `kind`, whichever is known."""

    time: float
    actor: str
    text: str
    name: str
    namespace: str = ""
    group: str = ""
    kind: str = ""
    resource: str = ""
    uid: str = ""
    revision: int = 0
    trace: str = ""


class List(msgspec.Struct, rename="camel"):
    """The API's answer about many objects: the newest entries of a time, the oldest first; `more` if there are others."""

    entries: list[Listed]
    complete_since: float
    more: bool


Entries = Sequence[tuple[int, Entry]]
"""Entries with their memory."""


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
        self._clock, self._limit = clock, limit
        self._rings: OrderedDict[str, _Ring] = OrderedDict()
        self.bytes = 0
        self.began = clock.now().timestamp()

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
        key, namespace, name, actor, uid = (_cut(each, LONGEST_NAME) for each in (key, namespace, name, actor, uid))
        text = _cut(text, LONGEST_TEXT)
        entry = Entry(self._clock.now().timestamp(), actor, text, uid, revision, spans.trace_id(), details)
        ring = self._rings.get(namespace)
        if ring is None:
            ring = self._rings[namespace] = _Ring(RING_BYTES + sys.getsizeof(namespace))
            self.bytes += ring.bytes
        about = key, name
        cost = ENTRY_BYTES + sys.getsizeof(actor) + sys.getsizeof(text) + sys.getsizeof(uid) + size_of(details)
        entries = ring.objects.get(about)
        added = cost
        if entries is None:
            entries = ring.objects[about] = deque()
            added += _object_bytes(about)
        entries.append((cost, entry))
        ring.order.append(about)
        ring.bytes += added
        self.bytes += added
        while self.bytes > self._limit:
            self._drop()

    def _drop(self) -> None:
        """Drop the oldest entry of a namespace that has more than its share."""
        share = self._limit / len(self._rings)
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
        about = ring.order.popleft()
        entries = ring.objects[about]
        cost, entry = entries.popleft()
        if not entries:
            del ring.objects[about]
            cost += _object_bytes(about)
        ring.bytes -= cost
        self.bytes -= cost
        ring.dropped = entry.time

    def about(self, key: str, namespace: str, name: str) -> Sequence[tuple[int, Entry]]:
        """Return the entries about an object with their memory, the oldest first, also those of earlier objects of its name."""
        ring = self._rings.get(namespace)
        return ring.objects.get((key, name), ()) if ring is not None else ()

    def objects(self, namespace: str | None) -> list[tuple[str, tuple[str, str], Entries]]:
        """Return the objects that have entries in a namespace, or in all (None): namespace, kind's key and name, entries."""
        names = list(self._rings) if namespace is None else [namespace]
        found = [(each, self._rings[each]) for each in names if each in self._rings]
        return [(each, about, entries) for each, ring in found for about, entries in ring.objects.items()]

    def complete_since_all(self) -> float:
        """Return the time since which the journal has every entry of all namespaces."""
        return max([self.began, *(ring.dropped for ring in self._rings.values())])

    def complete_since(self, namespace: str) -> float:
        """Return the time since which the journal has every entry of a namespace."""
        ring = self._rings.get(namespace)
        return max(self.began, ring.dropped) if ring is not None else self.began


def _object_bytes(about: tuple[str, str]) -> int:
    return OBJECT_BYTES + sys.getsizeof(about[0]) + sys.getsizeof(about[1])


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "..."


def size_of(value: Any) -> int:
    """Return the memory of JSON data in bytes."""
    if value is None:
        return 0
    size = sys.getsizeof(value)
    if isinstance(value, Mapping):
        return size + sum(size_of(key) + size_of(each) for key, each in value.items())
    if isinstance(value, list | tuple):
        return size + sum(map(size_of, value))
    return size
