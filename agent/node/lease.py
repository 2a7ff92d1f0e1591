"""Renews the node's Lease, the heartbeat that the node lifecycle controller watches.

The Lease is a small object that is written often, separately from the large node status. After a failed write it is read
again, because another agent may have written it, or it may have been deleted. Two agents with one name overwrite each
other's status and lease, as upstream's do, and both run the node's pods; each detects the other by a renewal that it did
not write.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from kube import serialize
from kube.api import coordination_v1, meta_v1
from kube.client import Client
from kube.clock import Clock, format_micro_time
from kube.errors import StatusError

log = logging.getLogger(__name__)

NAMESPACE = "kube-node-lease"


class NodeLease:
    """The lease of one node; `node_uid` returns "" while the Node does not exist, `seconds` is its duration."""

    def __init__(self, client: Client, name: str, node_uid: Callable[[], str], seconds: int, *, clock: Clock) -> None:
        self._client, self._name, self._node_uid, self._seconds = client, name, node_uid, seconds
        self._clock = clock
        self._lease: coordination_v1.Lease | None = None
        self._written: deque[str] = deque(maxlen=8)
        """The times of the last renewals that this agent has sent; the answers to some may be lost."""

    async def run(self) -> None:
        """Renew the lease until cancelled: every quarter of its duration."""
        while True:
            delay = self._seconds / 4
            try:
                await self._renew()
            except StatusError as error:
                log.warning("renewing the node's lease: %s", error)
                self._lease = None
                delay = min(delay, 1.0)
            await self._clock.sleep(delay)

    async def _renew(self) -> None:
        now = format_micro_time(self._clock.now())
        if self._lease is None:
            try:
                self._lease = await self._client.get(coordination_v1.Lease, self._name, NAMESPACE)
            except StatusError as error:
                if not error.not_found:
                    raise
                self._written.append(now)
                self._lease = await self._client.create(self._new_lease(now))
                return
            renewed = self._lease.spec.renew_time or ""
            if self._written and renewed not in self._written:
                log.warning("node %s: another agent with this name renews its lease, at %s", self._name, renewed)
        lease = serialize.copy(self._lease)
        lease.spec.holder_identity = self._name
        lease.spec.lease_duration_seconds = self._seconds
        lease.spec.renew_time = now
        self._written.append(now)
        self._lease = await self._client.update(lease)

    def _new_lease(self, now: str) -> coordination_v1.Lease:
        name, uid = self._name, self._node_uid()
        owners = [meta_v1.OwnerReference(api_version="v1", kind="Node", name=name, uid=uid)] if uid else []
        return coordination_v1.Lease(
            metadata=meta_v1.ObjectMeta(name=name, namespace=NAMESPACE, owner_references=owners),
            spec=coordination_v1.LeaseSpec(holder_identity=name, lease_duration_seconds=self._seconds, renew_time=now),
        )
