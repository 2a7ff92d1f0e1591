"""Documents in the form that most clients request, gzip: each is built once for all requests that wait for it, and kept.

Building one takes up to a second of CPU time, and packing as much again: it is done outside the event loop, at the turn of the
user who requested it first. A document is found by its name, and replaced by one with another ETag.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable

from control.event_loop import offload


class ZippedDocuments:
    """The documents of one server."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, bytes]] = {}
        self._building: dict[tuple[str, str], asyncio.Task[bytes]] = {}

    async def get(self, user: str, name: str, etag: str, make: Callable[[], bytes]) -> bytes:
        """Return a document as gzip, built by `make` if the kept one has another ETag."""
        kept = self._kept.get(name)
        if kept is not None and kept[0] == etag:
            return kept[1]
        key = name, etag
        task = self._building.get(key)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = self._building[key] = asyncio.create_task(
                self._build(user, name, etag, make), name=f"building {name}"
            )
        return await asyncio.shield(task)

    def forget(self, name: str) -> None:
        """Drop a document that is not served any more."""
        self._kept.pop(name, None)

    async def _build(self, user: str, name: str, etag: str, make: Callable[[], bytes]) -> bytes:
        try:
            zipped: bytes = await offload.complete(user, lambda: gzip.compress(make(), 6, mtime=0))
            self._kept[name] = etag, zipped
            return zipped
        finally:
            del self._building[name, etag]


async def unzipped(user: str, document: bytes) -> bytes:
    """Return a document as it is without compression, for the few clients that accept no gzip."""
    plain: bytes = await offload.read(user, gzip.decompress, document)
    return plain
