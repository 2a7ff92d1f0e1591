"""Writes the keys of a cluster in etcd to a snapshot file, through the API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from control.storage import archive
from control.storage.store import Item, Page, Unavailable

FOLDER = "/registry/"
PAGE = 1000
ROW = 100
"""Bytes of a row besides key and value, with its entries in the indexes."""


class Source(Protocol):
    """The part of a store that a snapshot reads."""

    async def list(self, prefix: str, revision: int = 0, start_after: str = "", limit: int = 0) -> Page: ...

    async def lifetimes(self, prefix: str) -> dict[str, int]: ...


async def save(store: Source, path: Path, check: Callable[[int], None] = lambda size: None) -> None:
    """Write the current keys of this cluster to a new file; raises Unavailable if it cannot be written.

    `check` gets the approximate size of the file before it is written, and may raise.
    """
    items, revision = await list_all(store)
    check(sum(len(item.value) + len(item.key) + ROW for item in items))
    lifetimes = await store.lifetimes(FOLDER)
    try:
        await asyncio.to_thread(archive.write, path, items, revision, lifetimes)
    except OSError as error:
        raise Unavailable(f"cannot write the snapshot {path}: {error}") from error


async def list_all(store: Source) -> tuple[list[Item], int]:
    """Return all keys of the cluster and their revision."""
    page = await store.list(FOLDER, limit=PAGE)
    items = list(page.items)
    while page.more:
        page = await store.list(FOLDER, page.revision, items[-1].key, PAGE)
        items += page.items
    return items, page.revision
