"""The storage engine for etcd v3: combines reads and writes (kv), watches, revisions and leases to the `Store` interface.

Several servers may use one etcd at the same time: etcd executes compare-and-swap, each consistent read requests the revision
from the cluster, and each server watches the same history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from control.storage.etcd.cluster import Cluster, Tls
from control.storage.etcd.errors import RevisionCompacted, RevisionInFuture
from control.storage.etcd.kv import KV
from control.storage.etcd.lease import Leases
from control.storage.etcd.mapping import ROOT, EtcdMapping
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

    def __init__(self, cluster: Cluster, mapping: EtcdMapping, clock: Clock = SYSTEM) -> None:
        self.cluster, self.mapping, self.clock = cluster, mapping, clock
        self.leases = Leases(cluster, clock)
        self._kv, self._revisions = KV(cluster, self.leases, mapping), Revisions(cluster, mapping)
        self._watches: set[EtcdWatch] = set()

    @classmethod
    async def open(
        cls, servers: Sequence[str], tls: Tls | None = None, prefix: str = ROOT, clock: Clock = SYSTEM
    ) -> EtcdStore:
        """Connect, and read the offset of revisions; raises Unavailable if no member answers in 10 s."""
        cluster = Cluster(servers, tls)
        try:
            mapping = EtcdMapping("/" + prefix.strip("/"))
            request = RangeRequest(key=mapping.offset_key)
            found = await cluster.call("/etcdserverpb.KV/Range", request, RangeResponse)
            offset = int(found.kvs[0].value) if found.kvs else 0
            return cls(cluster, EtcdMapping(mapping.prefix, offset), clock)
        except BaseException:
            await cluster.close()
            raise

    async def get(self, key: str) -> Item | None:
        return await self._kv.get(key)

    async def list(
        self, prefix: str, revision: int = 0, start_after: str = "", limit: int = 0, *, counted: bool = True
    ) -> Page:
        if revision and self.mapping.etcd_revision(revision) < FIRST:
            raise Compacted(revision, await self.compacted_revision())
        try:
            return await self._kv.page(prefix, revision, start_after, limit)
        except RevisionCompacted as error:
            raise Compacted(revision, await self.compacted_revision()) from error
        except RevisionInFuture as error:
            raise FutureRevision(revision, await self.current_revision()) from error

    async def create(self, key: str, value: bytes, ttl: int = 0) -> Item:
        return await self._kv.create(key, value, ttl)

    async def update(self, key: str, value: bytes, expected_revision: int, ttl: int = 0) -> Item:
        return await self._kv.update(key, value, expected_revision, ttl)

    async def delete(self, key: str, expected_revision: int = 0) -> Item:
        return await self._kv.delete(key, expected_revision)

    def watch(self, prefix: str, after_revision: int, *, previous: bool = False) -> EtcdWatch:
        watch = EtcdWatch(
            self.cluster, self.mapping, prefix, after_revision, previous=previous, closed=self._watches.discard
        )
        self._watches.add(watch)
        return watch

    async def compact(self, revision: int) -> None:
        try:
            request = CompactionRequest(revision=self.mapping.etcd_revision(revision))
            await self.cluster.call("/etcdserverpb.KV/Compact", request, CompactionResponse)
        except RevisionCompacted as error:
            raise Compacted(revision, await self.compacted_revision()) from error
        except RevisionInFuture as error:
            raise FutureRevision(revision, await self.current_revision()) from error

    async def compacted_revision(self) -> int:
        return await self._revisions.compacted()

    async def current_revision(self) -> int:
        return await self._revisions.current()

    def check(self) -> str | None:
        """Return the error of the connection; None if it works."""
        return self.cluster.trouble or None

    async def status(self) -> StatusResponse:
        """Return the status of a member: version, size, leader, errors."""
        return await self.cluster.call("/etcdserverpb.Maintenance/Status", StatusRequest(), StatusResponse)

    async def lifetimes(self, prefix: str) -> dict[str, int]:
        """Return the remaining seconds of the keys with a prefix that have a time to live."""
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
