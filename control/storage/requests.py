"""Requests to the writer thread, and the callbacks for their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from control.storage.store import Event, Item

Callback = Callable[[Item | None, Exception | None], None]


class Write(msgspec.Struct):
    """One request. `expected` 0 on a delete means any revision; `expires` is a wall-clock time in seconds."""

    kind: Literal["create", "update", "delete"]
    key: str
    value: bytes
    expected: int
    expires: float | None
    callback: Callback


class Compact(msgspec.Struct):
    revision: int
    callback: Callback


class Expire(msgspec.Struct):
    """Deletes the keys whose time to live is over."""

    callback: Callback


class ReleaseMemory(NamedTuple):
    """Frees the pages that SQLite keeps in memory."""


class Stop(NamedTuple):
    """The last entry of the queue."""


Request = Write | Compact | Expire | ReleaseMemory | Stop
Outcome = tuple[Callback, Item | None, Exception | None]
Publish = Callable[[Sequence[Event], int, Sequence[Outcome]], None]
