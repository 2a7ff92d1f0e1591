"""The interface of a storage engine: an ordered map of keys to bytes with one global revision.

The semantics are etcd v3's, because etcd is the second engine. Every successful write gets the next revision; a key has the
revision of its creation and that of its last change, and compare-and-swap uses the latter. Revisions strictly increase and are
never reused, even after a crash or a restore. A write that has returned is durable, and a read never returns a state that is
not. Until compaction removes them, old states can be listed and watches resumed.

Keys are upstream's (`/registry/pods/default/nginx`); values are opaque here (see codec). Prefixes are compared as text,
so a caller that means a folder ends it with "/".

Items and events are msgspec structs: one is created for every object that is read or changed, and creating a dataclass takes
five times as long.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec


class Item(msgspec.Struct, frozen=True, gc=False):
    """One key's state: `revision` is that of its last change, `create_revision` that of its creation.

    `failure` is the error if the value cannot be decrypted; the value is then empty.
    """

    key: str
    value: bytes
    revision: int
    create_revision: int
    failure: str = ""


class Page(msgspec.Struct, frozen=True):
    """A part of a listing in key order. `remaining` counts the keys after the last item; 0 unless `more`."""

    items: Sequence[Item]
    revision: int
    more: bool = False
    remaining: int = 0


class Event(msgspec.Struct, frozen=True, gc=False):
    """One change. A DELETED event has no value; its revision is that of the deletion.

    `previous` is the state before, if the watch requested it and there was one. `failure` is as in an Item.
    """

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    key: str
    value: bytes
    revision: int
    create_revision: int
    previous: Item | None = None
    failure: str = ""


class Batch(msgspec.Struct, frozen=True):
    """Changes in revision order, complete up to `revision`.

    A batch without events reports progress: there are no further changes with the prefix up to `revision`.
    """

    events: Sequence[Event]
    revision: int


class StoreError(Exception):
    """Base of the errors of a store."""


class KeyExists(StoreError):
    """The key to create exists; `current` is its state, if it can be read."""

    def __init__(self, key: str, current: Item | None = None) -> None:
        super().__init__(f"key {key} exists")
        self.key, self.current = key, current


class KeyNotFound(StoreError):
    def __init__(self, key: str) -> None:
        super().__init__(f"key {key} not found")
        self.key = key


class RevisionConflict(StoreError):
    """Compare-and-swap failed; `current` is the present state, for another attempt without another read."""

    def __init__(self, key: str, expected: int, current: Item) -> None:
        super().__init__(f"key {key} is at revision {current.revision}, not {expected}")
        self.key, self.expected, self.current = key, expected, current


class Compacted(StoreError):
    """The requested revision has been compacted."""

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
    """The engine cannot answer now. Whether a write took effect is unknown, as with any lost response."""


class NoSpace(StoreError):
    """The engine has no space for a write, which did not take effect. Reads and watches continue."""


class Watch(Protocol):
    """An endless iterator of batches; close it when done. Raises Compacted if it is behind the compacted revision."""

    def __aiter__(self) -> AsyncIterator[Batch]: ...

    async def __anext__(self) -> Batch: ...

    def request_progress(self) -> None:
        """Request a batch, possibly without events, that reports the revision of this watch."""

    async def aclose(self) -> None:
        """End the watch; a running iteration stops."""


class Store(Protocol):
    """Interface of a storage engine. All methods belong to one event loop."""

    async def get(self, key: str) -> Item | None:
        """Return the newest durable state of a key, or None."""

    async def list(
        self, prefix: str, revision: int = 0, start_after: str = "", limit: int = 0, *, counted: bool = True
    ) -> Page:
        """Return the keys with a prefix in byte order, as they were at a revision (0: now).

        `start_after` skips keys up to and including it; `limit` 0 is no limit. A page of large values may have fewer
        than `limit` and yet `more`. `Page.remaining` needs a pass over the other keys, and is 0 unless `counted`.
        `Page.revision` is the revision the listing shows. Raises Compacted and FutureRevision.
        """

    async def create(self, key: str, value: bytes, ttl: int = 0) -> Item:
        """Store a new key, for `ttl` seconds if not 0, after which it is deleted with an event. Raises KeyExists."""

    async def update(self, key: str, value: bytes, expected_revision: int, ttl: int = 0) -> Item:
        """Replace a value if the key is still at `expected_revision`. Raises KeyNotFound, RevisionConflict.

        The time to live is replaced too: 0 removes it.
        """

    async def delete(self, key: str, expected_revision: int = 0) -> Item:
        """Delete a key if it is still at `expected_revision` (0: at any revision).

        Returns the last value with the revision of the deletion. Raises KeyNotFound, RevisionConflict.
        """

    def watch(self, prefix: str, after_revision: int, *, previous: bool = False) -> Watch:
        """Yield every change of keys with a prefix after a revision, each once and in order."""

    async def compact(self, revision: int) -> None:
        """Remove states superseded at or before a revision; listing or watching from before it raises Compacted."""

    async def compacted_revision(self) -> int:
        """Return the revision given to the last compaction, 0 if there was none."""

    async def snapshot(self, path: Path) -> None:
        """Write a consistent copy to a new file with mode 0600."""

    async def current_revision(self) -> int:
        """Return the newest durable revision."""

    async def close(self) -> None:
        """Finish the requested writes, end all watches and release the engine."""


def prefix_end(prefix: str) -> str:
    """Return the least text greater than everything that begins with `prefix`; keys are below U+10FFFF."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else "\U0010ffff"
