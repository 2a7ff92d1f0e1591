"""Pods that wait for changes of objects, by the keys of these objects.

A change wakes only the pods that wait for this object: waiting pods have left their slots, so their number has no limit, and
evaluating all of them for each change of any object would block the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator


class ChangeWaiters:
    """Events by the UIDs of the pods that wait."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {}
        self._by_key: dict[str, set[str]] = {}

    @contextlib.contextmanager
    def waiting(self, uid: str, keys: Iterable[str]) -> Iterator[asyncio.Event]:
        """Register a pod; its event is set at each change of one of these objects."""
        waited = set(keys)
        event = self._events[uid] = asyncio.Event()
        for key in waited:
            self._by_key.setdefault(key, set()).add(uid)
        try:
            yield event
        finally:
            self._events.pop(uid, None)
            for key in waited:
                users = self._by_key.get(key, set())
                users.discard(uid)
                if not users:
                    self._by_key.pop(key, None)

    def changed(self, *keys: str) -> None:
        """Wake the pods that wait for one of these objects."""
        for key in keys:
            for uid in self._by_key.get(key, ()):
                self._events[uid].set()

    def wake(self, uid: str) -> None:
        """Wake one pod if it waits."""
        if (event := self._events.get(uid)) is not None:
            event.set()
