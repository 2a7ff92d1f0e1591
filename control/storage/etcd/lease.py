"""Leases for keys with a time to live. Keys written within a short time share a lease.

A lease is as costly for etcd as a key, and there are thousands of events. Like upstream, a lease is granted for a little longer
than requested (a twentieth, at most a minute) and reused while it lasts at least as long as the next key needs, for at most
1 000 keys, because etcd deletes all of them in one transaction when the lease expires.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from control.storage.etcd.cluster import Cluster
from control.storage.etcd.messages import (
    LeaseGrantRequest,
    LeaseGrantResponse,
    LeaseTimeToLiveRequest,
    LeaseTimeToLiveResponse,
)
from kube.clock import Clock

REUSE_SECONDS = 60
REUSE_SHARE = 0.05
MAX_KEYS = 1000


@dataclass(slots=True)
class _Lease:
    id: int
    ends: float
    keys: int = 0


class Leases:
    """Grants leases and reuses them."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock
        self._newest: _Lease | None = None
        self._lock = asyncio.Lock()

    async def for_ttl(self, ttl: int) -> int:
        """Return a lease that lasts `ttl` seconds or a little longer; 0, which is no lease, for 0."""
        if not ttl:
            return 0
        async with self._lock:
            spare = int(min(REUSE_SECONDS, ttl * REUSE_SHARE))
            now, lease = self._clock.monotonic(), self._newest
            fits = lease is not None and now + ttl <= lease.ends <= now + ttl + spare and lease.keys < MAX_KEYS
            if lease is None or not fits:
                request = LeaseGrantRequest(TTL=ttl + spare)
                granted = await self._cluster.call("/etcdserverpb.Lease/LeaseGrant", request, LeaseGrantResponse)
                lease = self._newest = _Lease(granted.ID, now + ttl + spare)
            lease.keys += 1
            return lease.id

    def forget(self, lease: int) -> None:
        """Do not reuse an expired lease."""
        if self._newest is not None and self._newest.id == lease:
            self._newest = None

    async def remaining(self, lease: int) -> int:
        """Return the seconds that a lease has left, less than 1 when it has expired."""
        request = LeaseTimeToLiveRequest(ID=lease)
        response = await self._cluster.call("/etcdserverpb.Lease/LeaseTimeToLive", request, LeaseTimeToLiveResponse)
        return response.TTL
