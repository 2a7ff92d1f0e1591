"""Our own latest writes, laid over an informer that may lag behind them.

A controller that names objects by generateName and plans from its cache would make an object twice if the cache did not
show the first one yet. What was written is kept here until the informer has seen that revision or a later one; or for half
a minute, since what was deleted again before a broken watch came back is never seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec

from kube.clock import SYSTEM, Clock
from kube.informer import Change, Informer
from kube.object_names import key_of, metadata_of

T = TypeVar("T", bound=msgspec.Struct)

KEPT_SECONDS = 30.0


class Overlay(Generic[T]):
    """Follow an informer; `current` merges its objects with what was written and not yet seen."""

    def __init__(self, informer: Informer[T], clock: Clock = SYSTEM) -> None:
        self._informer, self._clock = informer, clock
        self._written: dict[str, T] = {}
        self._deleted: dict[str, str] = {}
        self._times: dict[str, float] = {}
        informer.subscribe(self._seen)

    def _seen(self, change: Change[Any]) -> None:
        key = change.key
        written = self._written.get(key)
        if written is not None and (change.type == "DELETED" or _revision(change.new) >= _revision(written)):
            del self._written[key]
        if change.type == "DELETED" or self._deleted.get(key) != metadata_of(change.new).uid:
            self._deleted.pop(key, None)
        if key not in self._written and key not in self._deleted:
            self._times.pop(key, None)

    def wrote(self, obj: T) -> None:
        """Store the response to a create or an update."""
        key = key_of(obj)
        known = self._informer.get(key)
        if known is None or _revision(known) < _revision(obj):
            self._written[key] = obj
            self._note(key)

    def _note(self, key: str) -> None:
        self._times.pop(key, None)  # so that the oldest stand first
        self._times[key] = self._clock.monotonic()

    def _expire(self) -> None:
        oldest = self._clock.monotonic() - KEPT_SECONDS
        while self._times:
            key, since = next(iter(self._times.items()))
            if since >= oldest:
                return
            del self._times[key]
            self._written.pop(key, None)
            self._deleted.pop(key, None)

    def deleted(self, obj: T) -> None:
        """Record that an object was deleted."""
        key = key_of(obj)
        self._written.pop(key, None)
        known = self._informer.get(key)
        if known is not None and metadata_of(known).uid == metadata_of(obj).uid:
            self._deleted[key] = metadata_of(obj).uid or ""
            self._note(key)

    def get(self, key: str) -> T | None:
        """Return the latest state of one object."""
        self._expire()
        if key in self._deleted:
            return None
        return self._written.get(key) or self._informer.get(key)

    def current(self, cached: Iterable[T], written_matches: str) -> list[T]:
        """Return the latest states: those from an index look-up, and our writes whose key begins as given."""
        self._expire()
        merged = {key_of(obj): obj for obj in cached}
        for key, obj in self._written.items():
            if key.startswith(written_matches):
                merged[key] = obj
        return [obj for key, obj in merged.items() if key not in self._deleted]


def _revision(obj: Any) -> int:
    text = metadata_of(obj).resource_version or "0"
    return int(text) if text.isdigit() else 0
