"""Reads and writes: one call each. A write is a transaction that compares the key's revision and tells what is there if it
is another.

A write whose answer was lost is sent again (cluster.py). If the first attempt had taken effect, the second one is refused
and shows the very bytes that it wanted to store. Objects carry unique IDs and times, so equal bytes are this write's own,
and it has succeeded. A deletion leaves nothing to recognise: its outcome then stays unknown, and Unavailable says so.
"""

from __future__ import annotations

from control.storage.etcd.cluster import Cluster
from control.storage.etcd.coordinates import Coordinates
from control.storage.etcd.errors import LeaseGone
from control.storage.etcd.lease import Leases
from control.storage.etcd.messages import (
    Compare,
    DeleteRangeRequest,
    PutRequest,
    RangeRequest,
    RangeResponse,
    RequestOp,
    TxnRequest,
    TxnResponse,
)
from control.storage.store import Item, KeyExists, KeyNotFound, Page, RevisionConflict, Unavailable

_RANGE, _TXN = "/etcdserverpb.KV/Range", "/etcdserverpb.KV/Txn"
_NEVER = -1
"""A revision that no key is at."""


class KV:
    """The keys of one cluster. Raises RevisionGone and RevisionAhead for `page`; its caller knows the rest."""

    def __init__(self, cluster: Cluster, leases: Leases, at: Coordinates) -> None:
        self._cluster, self._leases, self._at = cluster, leases, at

    async def get(self, key: str) -> Item | None:
        answer = await self._cluster.call(_RANGE, RangeRequest(key=self._at.key(key)), RangeResponse)
        return self._at.item(answer.kvs[0], key) if answer.kvs else None

    async def page(self, prefix: str, revision: int, start_after: str, limit: int) -> Page:
        """Answer `Store.list`."""
        begin, end = self._at.folder(prefix, start_after)
        wire = self._at.wire(revision) if revision else 0
        asked = RangeRequest(key=begin, range_end=end, limit=limit, revision=wire)
        answer = await self._cluster.call(_RANGE, asked, RangeResponse)
        items = [self._at.item(kv, name) for kv in answer.kvs if (name := self._at.name(kv.key)) is not None]
        shown = revision or self._at.revision(answer.header.revision)
        return Page(items, shown, answer.more, answer.count - len(answer.kvs) if answer.more else 0)

    async def leased(self, prefix: str) -> dict[str, int]:
        """Return the lease of each key with a prefix that hangs on one."""
        begin, end = self._at.folder(prefix)
        answer = await self._cluster.call(_RANGE, RangeRequest(key=begin, range_end=end, keys_only=True), RangeResponse)
        return {name: kv.lease for kv in answer.kvs if kv.lease and (name := self._at.name(kv.key)) is not None}

    async def create(self, key: str, value: bytes, ttl: int) -> Item:
        answer, unsure = await self._put(key, value, 0, ttl)
        if answer.succeeded:
            revision = self._at.revision(answer.header.revision)
            return Item(key, value, revision, revision)
        current = self._found(answer, key)
        if unsure and current is not None and current.value == value:
            return current
        raise KeyExists(key, current)

    async def update(self, key: str, value: bytes, expected: int, ttl: int) -> Item:
        answer, unsure = await self._put(key, value, self._at.wire(expected) if expected else _NEVER, ttl)
        current = self._found(answer, key)
        if answer.succeeded:
            assert current is not None
            return Item(key, value, self._at.revision(answer.header.revision), current.create_revision)
        if current is None:
            raise KeyNotFound(key)
        if unsure and current.value == value:
            return current
        raise RevisionConflict(key, expected, current)

    async def delete(self, key: str, expected: int) -> Item:
        where = self._at.key(key)
        compare = Compare(target=Compare.MOD, key=where, mod_revision=self._at.wire(expected) if expected else 0)
        compare.result = Compare.EQUAL if expected else Compare.GREATER
        delete = RequestOp(request_delete_range=DeleteRangeRequest(key=where, prev_kv=True))
        request = TxnRequest(compare=[compare], success=[delete], failure=[_look(where)])
        answer, unsure = await self._cluster.attempt(_TXN, request, TxnResponse)
        if answer.succeeded:
            last = self._at.item(answer.responses[0].response_delete_range.prev_kvs[0], key)
            return Item(key, last.value, self._at.revision(answer.header.revision), last.create_revision)
        current = self._found(answer, key)
        if current is not None:
            raise RevisionConflict(key, expected, current)
        if unsure:
            raise Unavailable(f"etcd did not answer; {key} is gone, and by whom is unknown")
        raise KeyNotFound(key)

    async def _put(self, key: str, value: bytes, wire: int, ttl: int) -> tuple[TxnResponse, bool]:
        """Put a key that is at etcd's revision `wire`; the answer has the key's state before, or what is there."""
        where = self._at.key(key)
        compare = Compare(target=Compare.MOD, result=Compare.EQUAL, key=where, mod_revision=wire)
        while True:
            lease = await self._leases.for_ttl(ttl)
            put = RequestOp(request_put=PutRequest(key=where, value=value, lease=lease))
            # Of a key that was not there before there is nothing to look at.
            done = [_look(where, False), put] if wire else [put]
            request = TxnRequest(compare=[compare], success=done, failure=[_look(where)])
            try:
                return await self._cluster.attempt(_TXN, request, TxnResponse)
            except LeaseGone:
                self._leases.forget(lease)

    def _found(self, answer: TxnResponse, key: str) -> Item | None:
        kvs = answer.responses[0].response_range.kvs
        return self._at.item(kvs[0], key) if kvs else None


def _look(where: bytes, value: bool = True) -> RequestOp:
    return RequestOp(request_range=RangeRequest(key=where, keys_only=not value))
