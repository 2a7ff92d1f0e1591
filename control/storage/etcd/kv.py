"""Reads and writes: one call each. A write is a transaction that compares the key's revision, and reads the key otherwise.

No write is executed twice. An update, or a deletion at a revision, is retried if its response was lost (cluster.py): a key
never has the same revision again, so etcd rejects the retry if the first attempt took effect. A retried creation would
recreate an object that was deleted in between; it is retried only when the first attempt has not taken effect and no longer
can (outcome.py). A deletion at any revision is not retried.

If the key has another value by now, etcd's history shows whether the write took effect. A deletion leaves nothing to
identify it by: its outcome stays unknown, and Unavailable reports that.
"""

from __future__ import annotations

import asyncio

from control.storage.etcd.cluster import DEADLINE, MAX_RESPONSE_BYTES, Cluster
from control.storage.etcd.errors import LeaseExpired, OutcomeUnknown, ResponseTooLarge
from control.storage.etcd.lease import Leases
from control.storage.etcd.mapping import EtcdMapping
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
from control.storage.etcd.outcome import Outcomes
from control.storage.store import Item, KeyExists, KeyNotFound, NoSpace, Page, RevisionConflict, Unavailable

_RANGE, _TXN = "/etcdserverpb.KV/Range", "/etcdserverpb.KV/Txn"
_NEVER = -1
"""A revision that no key has."""
MAX_KEYS_OF_LARGE_VALUES = 1024
"""Limit of keys a response from which requests have no limit again."""


class KV:
    """The keys of one cluster. `page` raises RevisionCompacted and RevisionInFuture, without revisions."""

    def __init__(self, cluster: Cluster, leases: Leases, mapping: EtcdMapping) -> None:
        self._cluster, self._leases, self._mapping = cluster, leases, mapping
        self._outcomes = Outcomes(cluster, leases, mapping)
        self._max_keys = 0
        """Maximum number of keys a request since a response was too large; 0: no limit."""

    async def get(self, key: str) -> Item | None:
        response = await self._cluster.call(_RANGE, RangeRequest(key=self._mapping.etcd_key(key)), RangeResponse)
        return self._mapping.item(response.kvs[0], key) if response.kvs else None

    async def page(self, prefix: str, revision: int, start_after: str, limit: int) -> Page:
        """Return a page of a listing (`Store.list`)."""
        begin, end = self._mapping.key_range(prefix, start_after)
        wire, items = self._mapping.etcd_revision(revision) if revision else 0, list[Item]()
        while True:
            response = await self._range(RangeRequest(key=begin, range_end=end, revision=wire), limit)
            named = ((kv, self._mapping.store_key(kv.key)) for kv in response.kvs)
            items += [self._mapping.item(kv, key) for kv, key in named if key is not None]
            wire = wire or response.header.revision
            if not response.more or (limit and items):
                rest = response.count - len(response.kvs) if response.more else 0
                return Page(items, self._mapping.store_revision(wire), response.more, rest)
            begin = response.kvs[-1].key + b"\0"

    async def leased(self, prefix: str) -> dict[str, int]:
        """Return the lease of each key with a prefix that has one."""
        (begin, end), wire, found = self._mapping.key_range(prefix), 0, dict[str, int]()
        while True:
            response = await self._range(RangeRequest(key=begin, range_end=end, revision=wire, keys_only=True))
            named = ((kv, self._mapping.store_key(kv.key)) for kv in response.kvs if kv.lease)
            found |= {key: kv.lease for kv, key in named if key is not None}
            if not response.more:
                return found
            begin, wire = response.kvs[-1].key + b"\0", wire or response.header.revision

    async def _range(self, request: RangeRequest, limit: int = 0) -> RangeResponse:
        """Return the first keys of a range, at most `limit` if not 0, as many as fit into MAX_RESPONSE_BYTES.

        Raises ResponseTooLarge if the value of one key does not fit.
        """
        while True:
            request.limit = min(limit or self._max_keys, self._max_keys or limit)
            try:
                response = await self._cluster.call(_RANGE, request, RangeResponse)
            except ResponseTooLarge:
                if request.limit == 1:
                    raise
                self._max_keys = max(1, (request.limit or 4 * MAX_KEYS_OF_LARGE_VALUES) // 4)
                continue
            if self._max_keys and len(response.kvs) == self._max_keys and response.ByteSize() < MAX_RESPONSE_BYTES // 4:
                self._max_keys = self._max_keys * 2 if self._max_keys < MAX_KEYS_OF_LARGE_VALUES else 0
            return response

    async def create(self, key: str, value: bytes, ttl: int) -> Item:
        loop = asyncio.get_running_loop()
        end = loop.time() + DEADLINE
        while True:
            attempt, not_abandoned = self._outcomes.attempt()
            before = self._mapping.store_revision(self._cluster.revision)
            try:
                response, _ = await self._put(key, value, 0, ttl, not_abandoned)
            except NoSpace as error:
                return await self._stored_despite(error, key, value, before)
            except OutcomeUnknown as error:
                abandoned = await self._outcomes.abandon(attempt)
                stored = await self._outcomes.find(key, value, before, abandoned)
                if stored is not None:
                    return stored
                if loop.time() >= end:
                    raise Unavailable(f"{error}; {key} was not created") from error
                continue
            if response.succeeded:
                revision = self._mapping.store_revision(response.header.revision)
                return Item(key, value, revision, revision)
            raise KeyExists(key, self._found(response, key))

    async def update(self, key: str, value: bytes, expected: int, ttl: int) -> Item:
        before = max(expected, self._mapping.store_revision(self._cluster.revision))
        try:
            response, unsure = await self._put(
                key, value, self._mapping.etcd_revision(expected) if expected else _NEVER, ttl
            )
        except NoSpace as error:
            return await self._stored_despite(error, key, value, before)
        current = self._found(response, key)
        if response.succeeded:
            assert current is not None
            return Item(key, value, self._mapping.store_revision(response.header.revision), current.create_revision)
        if unsure and expected:
            stored = await self._outcomes.find(
                key, value, before, self._mapping.store_revision(response.header.revision)
            )
            if stored is not None:
                return stored
        if current is None:
            raise KeyNotFound(key)
        raise RevisionConflict(key, expected, current)

    async def delete(self, key: str, expected: int) -> Item:
        where = self._mapping.etcd_key(key)
        compare = Compare(
            target=Compare.MOD, key=where, mod_revision=self._mapping.etcd_revision(expected) if expected else 0
        )
        compare.result = Compare.EQUAL if expected else Compare.GREATER
        delete = RequestOp(request_delete_range=DeleteRangeRequest(key=where, prev_kv=True))
        request = TxnRequest(compare=[compare], success=[delete], failure=[_range_op(where)])
        unsure = False
        try:
            if expected:
                response, unsure = await self._cluster.call_conditional(_TXN, request, TxnResponse)
            else:
                response = await self._cluster.call_at_most_once(_TXN, request, TxnResponse)
        except OutcomeUnknown as error:
            raise Unavailable(f"{error}; whether {key} was deleted is unknown") from error
        if response.succeeded:
            last = self._mapping.item(response.responses[0].response_delete_range.prev_kvs[0], key)
            return Item(key, last.value, self._mapping.store_revision(response.header.revision), last.create_revision)
        current = self._found(response, key)
        if unsure and (current is None or current.create_revision > expected):
            raise Unavailable(f"etcd did not answer; {key} was deleted, and whether by this request is unknown")
        if current is None:
            raise KeyNotFound(key)
        raise RevisionConflict(key, expected, current)

    async def _put(
        self, key: str, value: bytes, wire: int, ttl: int, condition: Compare | None = None
    ) -> tuple[TxnResponse, bool]:
        """Put a key at etcd's revision `wire`, 0 to create it; the response has the previous state, or the current one."""
        where = self._mapping.etcd_key(key)
        compare = Compare(target=Compare.MOD, result=Compare.EQUAL, key=where, mod_revision=wire)
        conditions = [compare] if condition is None else [compare, condition]
        while True:
            lease = await self._leases.for_ttl(ttl)
            put = RequestOp(request_put=PutRequest(key=where, value=value, lease=lease))
            # A new key has no previous state to read.
            done = [_range_op(where, value=False), put] if wire else [put]
            request = TxnRequest(compare=conditions, success=done, failure=[_range_op(where)])
            try:
                if wire:
                    return await self._cluster.call_conditional(_TXN, request, TxnResponse)
                return await self._cluster.call_at_most_once(_TXN, request, TxnResponse), False
            except LeaseExpired:
                self._leases.forget(lease)

    async def _stored_despite(self, error: NoSpace, key: str, value: bytes, before: int) -> Item:
        """Return the item if a rejected put was stored all the same, else raise its error.

        etcd executes the write that exceeds its quota, and rejects it afterwards (its quotaApplierV3).
        """
        response = await self._cluster.call(
            _RANGE, _range_op(self._mapping.etcd_key(key), value=False).request_range, RangeResponse
        )
        stored = await self._outcomes.find(key, value, before, self._mapping.store_revision(response.header.revision))
        if stored is None:
            raise error
        return stored

    def _found(self, response: TxnResponse, key: str) -> Item | None:
        kvs = response.responses[0].response_range.kvs
        return self._mapping.item(kvs[0], key) if kvs else None


def _range_op(where: bytes, *, value: bool = True) -> RequestOp:
    return RequestOp(request_range=RangeRequest(key=where, keys_only=not value))
