"""Changes of objects with many owner references, applied to the graph in parts between which the event loop runs.

An informer's handler must not block the event loop, and an object of a megabyte may name tens of thousands of owners. Of
several changes of one object that wait, the latest is applied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

from control.controllers.discovery import DiscoveredResource
from control.controllers.garbage.graph import PART
from kube.informer import Change

log = logging.getLogger(__name__)


class LargeChanges:
    """Changes that wait. `apply` applies one, and yields after each part."""

    def __init__(self, apply: Callable[[DiscoveredResource, Change[Any]], Iterator[None]]) -> None:
        self._apply = apply
        self._waiting: dict[str, tuple[DiscoveredResource, Change[Any]]] = {}
        self._current = ""
        self._ready = asyncio.Event()

    def has(self, uid: str) -> bool:
        """Return whether a change of an object waits or is being applied."""
        return uid in self._waiting or uid == self._current

    def concerns(self, uid: str, change: Change[Any]) -> bool:
        """Return whether a change is large, or has to wait for another one of the same object."""
        if self.has(uid):
            return True
        old = change.old.metadata.owner_references if change.old is not None else ()
        return max(len(change.new.metadata.owner_references), len(old)) > PART

    def put(self, uid: str, resource: DiscoveredResource, change: Change[Any]) -> None:
        """Have a change applied later."""
        self._waiting[uid] = resource, change
        self._ready.set()

    async def apply_all(self) -> None:
        """Apply the changes that wait."""
        while self._waiting:
            self._current = next(iter(self._waiting))
            resource, change = self._waiting.pop(self._current)
            try:
                for _ in self._apply(resource, change):
                    await asyncio.sleep(0)
            except Exception:
                log.exception("garbage collector: a change of %s failed", change.key)
            finally:
                self._current = ""

    async def run(self) -> None:
        """Apply changes until cancelled."""
        while True:
            self._ready.clear()
            await self.apply_all()
            await self._ready.wait()
