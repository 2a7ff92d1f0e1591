"""Resolves the outcome of a write whose response was lost, from etcd's history.

A creation asks for no revision, so it might be carried out long after its answer was given up (a member that hung goes on),
and bring back what was deleted meanwhile. So each attempt asks, too, that a key of its own is not there; `Outcomes.abandon`
puts that key, and from then on the attempt is refused. What happened up to there is in the history: a put of the very bytes
was this write's own, for objects carry unique IDs and times.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools

from control.storage.etcd.cluster import Cluster
from control.storage.etcd.coordinates import Coordinates
from control.storage.etcd.errors import LeaseGone
from control.storage.etcd.lease import Leases
from control.storage.etcd.messages import Compare, PutRequest, RequestOp, TxnRequest, TxnResponse
from control.storage.etcd.watch import EtcdWatch
from control.storage.store import Compacted, Item, NoSpace, Unavailable
from kube.uid import new_uid

KEPT_SECONDS = 24 * 3600
"""Time that the key of an abandoned attempt stays."""
READ_SECONDS = 10.0
"""Time that the history may take."""


class Outcomes:
    """Finds out about writes of one cluster."""

    def __init__(self, cluster: Cluster, leases: Leases, at: Coordinates) -> None:
        self._cluster, self._leases, self._at = cluster, leases, at
        self._folder, self._numbers = f"wherry{at.prefix}/abandoned/{new_uid()}/".encode(), itertools.count(1)
        self._one = asyncio.Lock()

    def attempt(self) -> tuple[bytes, Compare]:
        """Return a key for a new attempt, and the condition that it is not there."""
        key = self._folder + b"%d" % next(self._numbers)
        return key, Compare(target=Compare.MOD, result=Compare.EQUAL, key=key, mod_revision=0)

    async def abandon(self, attempt: bytes) -> int:
        """Have an attempt refused from now on and return the revision of that; raises Unavailable."""
        try:
            while (revision := await self._put(attempt)) is None:
                pass
            return revision
        except NoSpace as error:
            raise Unavailable(f"what became of a write is unknown: {error}") from error

    async def _put(self, attempt: bytes) -> int | None:
        """Put the key of an attempt; None where the lease has run out meanwhile."""
        lease = await self._leases.for_ttl(KEPT_SECONDS)
        put = RequestOp(request_put=PutRequest(key=attempt, lease=lease))
        try:
            answer = await self._cluster.call("/etcdserverpb.KV/Txn", TxnRequest(success=[put]), TxnResponse)
        except LeaseGone:
            self._leases.forget(lease)
            return None
        return self._at.revision(answer.header.revision)

    async def find(self, key: str, value: bytes, after: int, upto: int) -> Item | None:
        """Return what a put of a value to a key has stored between two revisions; raises Unavailable where none can say."""
        if upto <= after:
            return None
        # One at a time: where a member was lost there are many to ask for, and each reads all that happened since.
        async with self._one:
            watch = EtcdWatch(self._cluster, self._at, key, after, False, lambda watch: None)
            try:
                async with asyncio.timeout(READ_SECONDS), contextlib.aclosing(watch):
                    async for batch in watch:
                        for event in batch.events:
                            if event.key == key and event.type != "DELETED" and event.value == value:
                                return Item(key, value, event.revision, event.create_revision)
                        if batch.revision >= upto:
                            return None
            except (Compacted, TimeoutError) as error:
                raise Unavailable(f"etcd did not answer, and its history cannot be read: {error}") from error
        raise Unavailable("etcd's history ended")
