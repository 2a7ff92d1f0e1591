"""Resolves the outcome of a write whose response was lost, from etcd's history.

A creation has no revision to compare, so a member that hung might execute it long after the request has failed, and recreate
an object that was deleted meanwhile. Therefore each attempt has the additional condition that a key of the attempt's own
does not exist; `Outcomes.abandon` puts that key, and from then on etcd rejects the attempt. The history up to there shows
whether the write took effect: a put with the same bytes is this write's, because objects contain unique IDs and times.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools

from control.storage.etcd.cluster import Cluster
from control.storage.etcd.errors import LeaseExpired
from control.storage.etcd.lease import Leases
from control.storage.etcd.mapping import EtcdMapping
from control.storage.etcd.messages import Compare, PutRequest, RequestOp, TxnRequest, TxnResponse
from control.storage.etcd.watch import EtcdWatch
from control.storage.store import Compacted, Item, NoSpace, Unavailable
from kube.uid import new_uid

KEPT_SECONDS = 24 * 3600
"""Time to live of the key of an abandoned attempt."""
READ_SECONDS = 10.0
"""Timeout of reading the history."""


class Outcomes:
    """Outcomes of the writes to one cluster."""

    def __init__(self, cluster: Cluster, leases: Leases, mapping: EtcdMapping) -> None:
        self._cluster, self._leases, self._mapping = cluster, leases, mapping
        self._folder, self._numbers = f"wherry{mapping.prefix}/abandoned/{new_uid()}/".encode(), itertools.count(1)
        self._one = asyncio.Lock()

    def attempt(self) -> tuple[bytes, Compare]:
        """Return a key for a new attempt, and the condition that it does not exist."""
        key = self._folder + b"%d" % next(self._numbers)
        return key, Compare(target=Compare.MOD, result=Compare.EQUAL, key=key, mod_revision=0)

    async def abandon(self, attempt: bytes) -> int:
        """Make etcd reject an attempt from now on and return the revision of that; raises Unavailable."""
        try:
            while (revision := await self._put(attempt)) is None:
                pass
            return revision
        except NoSpace as error:
            raise Unavailable(f"the outcome of a write is unknown: {error}") from error

    async def _put(self, attempt: bytes) -> int | None:
        """Put the key of an attempt; None if the lease has expired meanwhile."""
        lease = await self._leases.for_ttl(KEPT_SECONDS)
        put = RequestOp(request_put=PutRequest(key=attempt, lease=lease))
        try:
            response = await self._cluster.call("/etcdserverpb.KV/Txn", TxnRequest(success=[put]), TxnResponse)
        except LeaseExpired:
            self._leases.forget(lease)
            return None
        return self._mapping.store_revision(response.header.revision)

    async def find(self, key: str, value: bytes, after: int, upto: int) -> Item | None:
        """Return the item that a put of a value to a key has stored between two revisions; raises Unavailable."""
        if upto <= after:
            return None
        # One at a time: after the loss of a member there are many, and each reads the history since then.
        async with self._one:
            watch = EtcdWatch(self._cluster, self._mapping, key, after, previous=False, closed=lambda watch: None)
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
