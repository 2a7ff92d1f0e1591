"""etcd v3 as a storage engine: joins reads and writes (kv), watches, revisions and leases to the `Store` contract.

Several servers may use one etcd at once: compare-and-swap is etcd's, every read that must not be stale asks the cluster, and
each server follows the same history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from control.storage.etcd.cluster import Cluster, Tls
from control.storage.etcd.coordinates import ROOT, Coordinates
from control.storage.etcd.errors import RevisionAhead, RevisionGone
from control.storage.etcd.kv import KV
from control.storage.etcd.lease import Leases
from control.storage.etcd.messages import (
    CompactionRequest,
    CompactionResponse,
    RangeRequest,
    RangeResponse,
    StatusRequest,
    StatusResponse,
)
from control.storage.etcd.revisions import FIRST, Revisions
from control.storage.etcd.save import save
from control.storage.etcd.watch import EtcdWatch
from control.storage.store import Compacted, FutureRevision, Item, Page
from kube.clock import SYSTEM, Clock


class EtcdStore:
    """One cluster's keys in an etcd. Open it with `await EtcdStore.open(servers)`."""

    def __init__(self, cluster: Cluster, at: Coordinates, clock: Clock = SYSTEM) -> None:
        self.cluster, self.at, self.clock = cluster, at, clock
        self.leases = Leases(cluster, clock)
        self._kv, self._revisions = KV(cluster, self.leases, at), Revisions(cluster, at)
        self._watches: set[EtcdWatch] = set()

    @classmethod
    async def open(
        cls, servers: Sequence[str], tls: Tls | None = None, prefix: str = ROOT, clock: Clock = SYSTEM
    ) -> EtcdStore:
        """Connect, and find out how revisions are counted; raises Unavailable when no member answers in 10 s."""
        cluster = Cluster(servers, tls)
        try:
            at = Coordinates("/" + prefix.strip("/"))
            asked = RangeRequest(key=at.offset_key)
            found = await cluster.call("/etcdserverpb.KV/Range", asked, RangeResponse)
            offset = int(found.kvs[0].value) if found.kvs else 0
            return cls(cluster, Coordinates(at.prefix, offset), clock)
        except BaseException:
            await cluster.close()
            raise

    async def get(self, key: str) -> Item | None:
        return await self._kv.get(key)

    async def list(self, prefix: str, revision: int = 0, start_after: str = "", limit: int = 0) -> Page:
        if revision and self.at.wire(revision) < FIRST:
            raise Compacted(revision, await self.compacted_revision())
        try:
            return await self._kv.page(prefix, revision, start_after, limit)
        except RevisionGone as error:
            raise Compacted(revision, await self.compacted_revision()) from error
        except RevisionAhead as error:
            raise FutureRevision(revision, await self.current_revision()) from error

    async def create(self, key: str, value: bytes, ttl: int = 0) -> Item:
        return await self._kv.create(key, value, ttl)

    async def update(self, key: str, value: bytes, expected_revision: int, ttl: int = 0) -> Item:
        return await self._kv.update(key, value, expected_revision, ttl)

    async def delete(self, key: str, expected_revision: int = 0) -> Item:
        return await self._kv.delete(key, expected_revision)

    def watch(self, prefix: str, after_revision: int, previous: bool = False) -> EtcdWatch:
        watch = EtcdWatch(self.cluster, self.at, prefix, after_revision, previous, self._watches.discard)
        self._watches.add(watch)
        return watch

    async def compact(self, revision: int) -> None:
        try:
            asked = CompactionRequest(revision=self.at.wire(revision))
            await self.cluster.call("/etcdserverpb.KV/Compact", asked, CompactionResponse)
        except RevisionGone as error:
            raise Compacted(revision, await self.compacted_revision()) from error
        except RevisionAhead as error:
            raise FutureRevision(revision, await self.current_revision()) from error

    async def compacted_revision(self) -> int:
        return await self._revisions.compacted()

    async def current_revision(self) -> int:
        return await self._revisions.current()

    def check(self) -> str | None:
        """Return what is wrong with the connection, None where nothing is."""
        return self.cluster.trouble or None

    async def status(self) -> StatusResponse:
        """Return what a member says of itself: version, size, leader, errors."""
        return await self.cluster.call("/etcdserverpb.Maintenance/Status", StatusRequest(), StatusResponse)

    async def lifetimes(self, prefix: str) -> dict[str, int]:
        """Return the seconds left of the keys with a prefix that have a time to live."""
        leases: dict[int, int] = {}
        found = await self._kv.leased(prefix)
        for lease in set(found.values()):
            leases[lease] = await self.leases.remaining(lease)
        return {key: leases[lease] for key, lease in found.items()}

    async def snapshot(self, path: Path) -> None:
        await save(self, path)

    async def close(self) -> None:
        await asyncio.gather(*(watch.aclose() for watch in list(self._watches)))
        await self.cluster.close()
