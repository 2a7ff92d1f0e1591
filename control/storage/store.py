"""The contract of a storage engine: an ordered map of keys to bytes with one global revision.

The semantics are etcd v3's, because that is the second engine. Every successful write gets the next revision; a key
has the revision that created it and the one that changed it last, and compare-and-swap is on the latter.
Revisions rise strictly and are never used twice, also after a crash or a restore. A write that returned is durable,
and a read never shows what is not. Until compaction removes them, old states can be listed and watches resumed.

Keys are upstream's (`/registry/pods/default/nginx`); values are opaque here (see codec). Prefixes are compared as text,
so a caller that means a folder ends it with "/".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class Item:
    """One key's state: `revision` is when it was last changed, `create_revision` when it came to be.

    `failure` says why the value cannot be read (it cannot be decrypted); the value is then empty.
    """

    key: str
    value: bytes
    revision: int
    create_revision: int
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing in key order. `remaining` counts the keys after the last item; 0 unless `more`."""

    items: Sequence[Item]
    revision: int
    more: bool = False
    remaining: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """One change. A DELETED event has no value; its revision is that of the deletion.

    `previous` is the state before, given only where the watch asked for it and there was one. `failure` is as an Item's.
    """

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    key: str
    value: bytes
    revision: int
    create_revision: int
    previous: Item | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes in revision order; `revision` says how far the watcher has now seen everything.

    A batch without events is progress: nothing with the prefix happened up to `revision`.
    """

    events: Sequence[Event]
    revision: int


class StoreError(Exception):
    """Base of what a store raises."""


class KeyExists(StoreError):
    """A create found the key; `current` is what is there."""

    def __init__(self, key: str, current: Item | None = None) -> None:
        super().__init__(f"key {key} exists")
        self.key, self.current = key, current


class KeyNotFound(StoreError):
    def __init__(self, key: str) -> None:
        super().__init__(f"key {key} not found")
        self.key = key


class RevisionConflict(StoreError):
    """Compare-and-swap failed; `current` is what is there, for another attempt without another read."""

    def __init__(self, key: str, expected: int, current: Item) -> None:
        super().__init__(f"key {key} is at revision {current.revision}, not {expected}")
        self.key, self.expected, self.current = key, expected, current


class Compacted(StoreError):
    """The revision asked for is older than what is kept."""

    def __init__(self, revision: int, compacted: int) -> None:
        super().__init__(f"revision {revision} has been compacted; the oldest kept is {compacted}")
        self.revision, self.compacted = revision, compacted


class FutureRevision(StoreError):
    def __init__(self, revision: int, current: int) -> None:
        super().__init__(f"revision {revision} has not happened yet; the current one is {current}")
        self.revision, self.current = revision, current


class Corrupt(StoreError):
    """The data cannot be trusted; nothing was opened or changed."""


class Unreadable(StoreError):
    """A stored value cannot be decrypted now; other values can be read."""

    def __init__(self, key: str, failure: str) -> None:
        super().__init__(f'unable to transform key "{key}": {failure}')
        self.key, self.failure = key, failure


class Unavailable(StoreError):
    """The engine cannot answer now. Whether a write took effect is unknown, as with any lost reply."""


class NoSpace(StoreError):
    """The engine has no space for a write, which did not take effect. Reads and watches go on."""


class Watch(Protocol):
    """An endless iterator of batches; close it when done. Raises Compacted when it fell behind what is kept."""

    def __aiter__(self) -> AsyncIterator[Batch]: ...

    async def __anext__(self) -> Batch: ...

    def request_progress(self) -> None:
        """Ask for a batch, if need be an empty one, that says how far this watch has come."""

    async def aclose(self) -> None:
        """End the watch; an iteration under way stops."""


class Store(Protocol):
    """Interface of a storage engine. All methods belong to one event loop."""

    async def get(self, key: str) -> Item | None:
        """Return the newest durable state of a key, or None."""

    async def list(self, prefix: str, revision: int = 0, start_after: str = "", limit: int = 0) -> Page:
        """Return the keys with a prefix in byte order, as they were at a revision (0: now).

        `start_after` skips keys up to and including it; `limit` 0 is no limit. A page of large values may have fewer
        than `limit` and yet `more`. `Page.revision` is the revision the listing shows. Raises Compacted and FutureRevision.
        """

    async def create(self, key: str, value: bytes, ttl: int = 0) -> Item:
        """Store a new key, for `ttl` seconds if not 0, after which it is deleted with an event. Raises KeyExists."""

    async def update(self, key: str, value: bytes, expected_revision: int, ttl: int = 0) -> Item:
        """Replace a value if the key is still at `expected_revision`. Raises KeyNotFound, RevisionConflict.

        The time to live is replaced too: 0 makes the key stay.
        """

    async def delete(self, key: str, expected_revision: int = 0) -> Item:
        """Delete a key if it is still at `expected_revision` (0: whatever it is at).

        Returns the last value with the revision of the deletion. Raises KeyNotFound, RevisionConflict.
        """

    def watch(self, prefix: str, after_revision: int, previous: bool = False) -> Watch:
        """Yield every change of keys with a prefix after a revision, each once and in order."""

    async def compact(self, revision: int) -> None:
        """Forget states superseded at or before a revision; listing or watching from before it raises Compacted."""

    async def compacted_revision(self) -> int:
        """Return the revision given to the last compaction, 0 if there was none."""

    async def snapshot(self, path: Path) -> None:
        """Write a consistent copy to a new file with mode 0600."""

    async def current_revision(self) -> int:
        """Return the newest durable revision."""

    async def close(self) -> None:
        """Finish the writes already asked for, end all watches and release the engine."""


def prefix_end(prefix: str) -> str:
    """Return the least text greater than everything that begins with `prefix`; keys are below U+10FFFF."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else "\U0010ffff"
