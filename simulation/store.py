"""The store of a simulated cluster: it survives all processes, and each API server reaches it over a network of its own.

When a message is lost the server learns only that the store is unavailable, as from etcd: whether a write took effect is
unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from control.storage.memory import MemoryStore
from control.storage.memory_watch import MemoryWatch
from control.storage.store import Batch, Item, Page, Unavailable
from simulation.link import Network, in_process
from simulation.processes import Process

T = TypeVar("T")
LATE_SECONDS = 0.5
"""Interval in which a watch checks that it is still late."""


class RemoteStore:
    """The store as an API server, `member`, reaches it (`control.storage.store.Store`); `process` is that of the store."""

    def __init__(self, store: MemoryStore, process: Process, network: Network, member: str) -> None:
        self._store, self._process, self._network, self._member = store, process, network, member

    async def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        network = self._network
        lost = network.rng.random() < network.lost
        lost_before = lost and network.rng.random() < 0.5
        await asyncio.sleep(network.latency())
        if lost_before:
            raise Unavailable("no answer from the store")
        result = await in_process(self._process, work)
        await asyncio.sleep(network.latency())
        if lost:
            raise Unavailable("no answer from the store")
        return result

    async def get(self, key: str) -> Item | None:
        return await self._call(lambda: self._store.get(key))

    async def list(
        self, prefix: str, revision: int = 0, start_after: str = "", limit: int = 0, *, counted: bool = True
    ) -> Page:
        return await self._call(lambda: self._store.list(prefix, revision, start_after, limit, counted=counted))

    async def create(self, key: str, value: bytes, ttl: int = 0) -> Item:
        return await self._call(lambda: self._store.create(key, value, ttl))

    async def update(self, key: str, value: bytes, expected_revision: int, ttl: int = 0) -> Item:
        return await self._call(lambda: self._store.update(key, value, expected_revision, ttl))

    async def delete(self, key: str, expected_revision: int = 0) -> Item:
        return await self._call(lambda: self._store.delete(key, expected_revision))

    def watch(self, prefix: str, after_revision: int, *, previous: bool = False) -> RemoteWatch:
        return RemoteWatch(self._store.watch(prefix, after_revision, previous=previous), self._network, self._member)

    async def compact(self, revision: int) -> None:
        await self._call(lambda: self._store.compact(revision))

    async def compacted_revision(self) -> int:
        return await self._call(self._store.compacted_revision)

    async def current_revision(self) -> int:
        return await self._call(self._store.current_revision)

    async def snapshot(self, path: Path) -> None:
        """Write no file: simulated processes have no disk."""
        raise Unavailable(f"cannot write the snapshot {path}: no disk")

    async def close(self) -> None:
        """The store outlives its clients."""


class RemoteWatch:
    """A watch whose batches arrive later, or that the network cuts."""

    def __init__(self, watch: MemoryWatch, network: Network, member: str) -> None:
        self._watch, self._network, self._member = watch, network, member

    def __aiter__(self) -> RemoteWatch:
        return self

    async def __anext__(self) -> Batch:
        batch = await self._watch.__anext__()
        await asyncio.sleep(self._network.latency())
        if self._member in self._network.late:
            while self._member in self._network.late:  # noqa: ASYNC110 - the faults run in another event loop
                await asyncio.sleep(LATE_SECONDS)
            if self._network.rng.random() < 0.5:
                await self._watch.aclose()
                raise Unavailable("the watch of the store was late")
        if self._network.cut and self._network.rng.random() < self._network.cut:
            await self._watch.aclose()
            raise Unavailable("the watch of the store was cut")
        return batch

    def request_progress(self) -> None:
        self._watch.request_progress()

    async def aclose(self) -> None:
        await self._watch.aclose()
