"""Bounded record of the decisions of one process about objects: changes, refusals, attempts.

`wherry why` reads it through the API. Entries are made by the code that decides, as it decides: they have what events and logs
leave out (refused requests, the reasons of each node, changes by admission). The oldest entries of the namespaces with the most
are dropped when all take more than the limit. Clients write some of the texts: each is cut, and counted by the memory it takes.

Entries are kept encoded, one after another in blocks of some KiB, and decoded when they are read. As objects they would take
three times the memory, in small blocks among those of a load, whose pages they would keep in use when the load is over. They
have no index: to search a namespace's blocks for the name of an object takes a millisecond for all entries.
"""

from __future__ import annotations

import struct
import sys
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kube.clock import Clock
from kube.tracing import spans

PATH = "/wherry/v1/journal"
"""Path of the API that answers entries."""
LIMIT_BYTES = 8 << 20
ENTRY_BYTES, RING_BYTES = 8, 1000
"""Memory of an entry without its encoded form, and of a namespace."""
BLOCK_BYTES = 16 << 10
LONGEST_TEXT, LONGEST_NAME = 2048, 253
"""Characters of a text and of a name, after which they are cut: no object has a longer name."""
_LENGTH = struct.Struct("<II")
"""Before an entry: the length of the object's key and name, and that of the encoded entry."""


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


_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Entry)


def _encoded(entry: Entry) -> bytes:
    """Return an entry's encoded form. Characters that UTF-8 does not have are replaced, and such details left out."""
    try:
        return _encoder.encode(entry)
    except UnicodeEncodeError:
        actor, text, uid = (each.encode(errors="replace").decode() for each in (entry.actor, entry.text, entry.uid))
        return _encoder.encode(Entry(entry.time, actor, text, uid, entry.revision, entry.trace))


def _object(key: str, name: str) -> bytes:
    """Return an object's key and name as they are before its entries; neither contains a zero byte."""
    return f"\0{key}\0{name}\0".encode(errors="replace")


class _Ring:
    """The entries of one namespace, in blocks, the oldest first."""

    __slots__ = ("blocks", "bytes", "dropped")

    def __init__(self, size: int) -> None:
        self.blocks: deque[bytearray] = deque()
        self.bytes = size
        self.dropped = 0.0
        """Time of the newest entry that was dropped."""

    def append(self, about: bytes, entry: bytes) -> int:
        """Add an entry; return the memory that it takes."""
        if not self.blocks or len(self.blocks[-1]) >= BLOCK_BYTES:
            self.blocks.append(bytearray())
        block = self.blocks[-1]
        block += _LENGTH.pack(len(about), len(entry)) + about + entry
        return _cost(len(about), len(entry))

    def drop(self) -> int:
        """Drop the oldest entry; return the memory that it took."""
        block = self.blocks[0]
        about, entry = _LENGTH.unpack_from(block)
        end = _LENGTH.size + about + entry
        self.dropped = _decoder.decode(block[end - entry : end]).time
        if end == len(block):
            self.blocks.popleft()
        else:
            self.blocks[0] = block[end:]
        return _cost(about, entry)

    def about(self, wanted: bytes) -> Iterator[tuple[int, Entry]]:
        """Yield the entries of an object with their memory, the newest first."""
        for block in reversed(self.blocks):
            found = list[tuple[int, Entry]]()
            at = 0 if wanted in block else len(block)
            while at < len(block):
                about, entry = _LENGTH.unpack_from(block, at)
                at += _LENGTH.size + about
                if about == len(wanted) and block.startswith(wanted, at - about):
                    found.append((_cost(about, entry), _decoder.decode(block[at : at + entry])))
                at += entry
            yield from reversed(found)


def _cost(about: int, entry: int) -> int:
    """Return the memory of an entry: a block may be an eighth larger than its contents."""
    return ENTRY_BYTES + _LENGTH.size + (about + entry) * 9 // 8


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
        entry = _encoded(Entry(self._clock.now().timestamp(), actor, text, uid, revision, spans.trace_id(), details))
        ring = self._rings.get(namespace)
        if ring is None:
            ring = self._rings[namespace] = _Ring(RING_BYTES + sys.getsizeof(namespace))
            self.bytes += ring.bytes
        added = ring.append(_object(key, name), entry)
        ring.bytes += added
        self.bytes += added
        while self.bytes > self._limit:
            self._drop()

    def _drop(self) -> None:
        """Drop the oldest entry of a namespace that has more than its share."""
        share = self._limit / len(self._rings)
        while True:
            namespace, ring = next(iter(self._rings.items()))
            if ring.bytes > share or not ring.blocks or len(self._rings) == 1:
                break
            self._rings.move_to_end(namespace)
        if not ring.blocks:  # a namespace whose entries are all dropped
            del self._rings[namespace]
            self.bytes -= ring.bytes
            self.began = max(self.began, ring.dropped)
            return
        cost = ring.drop()
        ring.bytes -= cost
        self.bytes -= cost

    def about(self, key: str, namespace: str, name: str) -> Iterator[tuple[int, Entry]]:
        """Return the entries about an object with their memory, the newest first, also those of earlier objects of its name."""
        ring = self._rings.get(namespace)
        return ring.about(_object(key, name)) if ring is not None else iter(())

    def complete_since(self, namespace: str) -> float:
        """Return the time since which the journal has every entry of a namespace."""
        ring = self._rings.get(namespace)
        return max(self.began, ring.dropped) if ring is not None else self.began


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "..."
