"""Bounded record of the decisions of one process about objects: changes, refusals, attempts.

`wherry why` reads it through the API. Entries are made by the code that decides, as it decides: they have what events and logs
leave out (denied requests, the reasons of each node, changes by admission). The oldest entries of the namespaces with the most
are dropped when all take more than the limit.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kube.clock import Clock
from kube.tracing import spans

LIMIT_BYTES = 20 << 20
ENTRY_BYTES = 400
"""Memory of an entry without its texts."""
RING_BYTES = 1000
"""Memory of a namespace without entries."""
MOST_TEXT = 2048
"""Characters of a text, after which it is cut."""


class Entry(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A decision: `actor` did at `time` (seconds since 1970) what `text` says with the object.

    revision: the one that the decision is about or has made. trace: ID of the OpenTelemetry trace. details: more, as JSON data.
    """

    time: float
    kind: str
    namespace: str
    name: str
    actor: str
    text: str
    uid: str = ""
    revision: int = 0
    trace: str = ""
    details: Mapping[str, Any] | None = None


class Page(msgspec.Struct, rename="camel", omit_defaults=True):
    """The entries about one object as JSON; `complete_since`: time since which there is an entry for everything.

    not_known: what is missing and why.
    """

    entries: list[Entry]
    complete_since: float
    not_known: list[str] = msgspec.field(default_factory=list)


class _Ring:
    """The entries of one namespace."""

    __slots__ = ("bytes", "dropped", "entries")

    def __init__(self) -> None:
        self.entries: deque[tuple[int, Entry]] = deque()
        self.bytes = 0
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
        kind: str,
        namespace: str,
        name: str,
        actor: str,
        text: str,
        *,
        uid: str = "",
        revision: int = 0,
        details: Mapping[str, Any] | None = None,
        size: int = 0,
    ) -> None:
        """Add an entry. `size` is the memory of `details` in bytes, at least roughly."""
        if len(text) > MOST_TEXT:
            text = text[:MOST_TEXT] + "..."
        trace = spans.trace_id()
        entry = Entry(self._clock.now().timestamp(), kind, namespace, name, actor, text, uid, revision, trace, details)
        ring = self._rings.get(namespace)
        if ring is None:
            ring = self._rings[namespace] = _Ring()
            ring.bytes = RING_BYTES
            self.bytes += RING_BYTES
        cost = ENTRY_BYTES + len(text) + size
        ring.entries.append((cost, entry))
        ring.bytes += cost
        self.bytes += cost
        while self.bytes > self._limit:
            self._drop()

    def _drop(self) -> None:
        """Drop the oldest entry of a namespace that has more than its share."""
        share = self._limit / len(self._rings)
        while True:
            namespace, ring = next(iter(self._rings.items()))
            if ring.bytes > share or not ring.entries or len(self._rings) == 1:
                break
            self._rings.move_to_end(namespace)
        if not ring.entries:  # a namespace that is gone for long
            del self._rings[namespace]
            self.bytes -= ring.bytes
            self.began = max(self.began, ring.dropped)
            return
        cost, entry = ring.entries.popleft()
        ring.bytes -= cost
        ring.dropped = entry.time
        self.bytes -= cost

    def about(self, kind: str, namespace: str, name: str) -> Iterator[Entry]:
        """Yield the entries about an object, the oldest first, also those of earlier objects of its name."""
        ring = self._rings.get(namespace)
        for _, entry in ring.entries if ring is not None else ():
            if entry.name == name and entry.kind == kind:
                yield entry

    def complete_since(self, namespace: str) -> float:
        """Return the time since which the journal has every entry of a namespace."""
        ring = self._rings.get(namespace)
        return max(self.began, ring.dropped) if ring is not None else self.began
