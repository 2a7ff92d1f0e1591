"""Reads and writes: one call each. A write is a transaction that compares the key's revision and tells what is there if it
is another.

No write is carried out twice. An update, or a deletion at a revision, whose answer was lost is sent again (cluster.py): a key
is never at the same revision again, so etcd refuses the second one if the first had taken effect. A creation, whose second
attempt would bring back what somebody deleted in between, is sent again when the first attempt has not taken effect and
cannot any more (outcome.py). A deletion at any revision is not sent again.

What was written is found in etcd's history where the key shows something else by now. A deletion leaves nothing to recognise:
its outcome stays unknown, and Unavailable says so.
"""

from __future__ import annotations

import asyncio

from control.storage.etcd.cluster import ANSWER_BYTES, DEADLINE, Cluster
from control.storage.etcd.coordinates import Coordinates
from control.storage.etcd.errors import AnswerTooLarge, LeaseGone, Unclear
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
from control.storage.etcd.outcome import Outcomes
from control.storage.store import Item, KeyExists, KeyNotFound, NoSpace, Page, RevisionConflict, Unavailable

_RANGE, _TXN = "/etcdserverpb.KV/Range", "/etcdserverpb.KV/Txn"
_NEVER = -1
"""A revision that no key is at."""
MANY = 1024
"""Keys of a range that fit into one answer unless their values are large."""


class KV:
    """The keys of one cluster. Raises RevisionGone and RevisionAhead for `page`; its caller knows the rest."""

    def __init__(self, cluster: Cluster, leases: Leases, at: Coordinates) -> None:
        self._cluster, self._leases, self._at = cluster, leases, at
        self._outcomes = Outcomes(cluster, leases, at)
        self._fit = 0
        """How many keys are asked for at once since an answer was too large; 0: any number."""

    async def get(self, key: str) -> Item | None:
        answer = await self._cluster.call(_RANGE, RangeRequest(key=self._at.key(key)), RangeResponse)
        return self._at.item(answer.kvs[0], key) if answer.kvs else None

    async def page(self, prefix: str, revision: int, start_after: str, limit: int) -> Page:
        """Answer `Store.list`."""
        begin, end = self._at.folder(prefix, start_after)
        wire, items = self._at.wire(revision) if revision else 0, list[Item]()
        while True:
            answer = await self._range(RangeRequest(key=begin, range_end=end, revision=wire), limit)
            items += [self._at.item(kv, name) for kv in answer.kvs if (name := self._at.name(kv.key)) is not None]
            wire = wire or answer.header.revision
            if not answer.more or (limit and items):
                rest = answer.count - len(answer.kvs) if answer.more else 0
                return Page(items, self._at.revision(wire), answer.more, rest)
            begin = answer.kvs[-1].key + b"\0"

    async def leased(self, prefix: str) -> dict[str, int]:
        """Return the lease of each key with a prefix that hangs on one."""
        (begin, end), wire, found = self._at.folder(prefix), 0, dict[str, int]()
        while True:
            answer = await self._range(RangeRequest(key=begin, range_end=end, revision=wire, keys_only=True))
            found |= {name: kv.lease for kv in answer.kvs if kv.lease and (name := self._at.name(kv.key)) is not None}
            if not answer.more:
                return found
            begin, wire = answer.kvs[-1].key + b"\0", wire or answer.header.revision

    async def _range(self, asked: RangeRequest, limit: int = 0) -> RangeResponse:
        """Return the first keys of a range, at most `limit` if not 0, and as many as one answer may have (ANSWER_BYTES).

        Raises AnswerTooLarge where one key's value is.
        """
        while True:
            asked.limit = min(limit or self._fit, self._fit or limit)
            try:
                answer = await self._cluster.call(_RANGE, asked, RangeResponse)
            except AnswerTooLarge:
                if asked.limit == 1:
                    raise
                self._fit = max(1, (asked.limit or 4 * MANY) // 4)
                continue
            if self._fit and len(answer.kvs) == self._fit and answer.ByteSize() < ANSWER_BYTES // 4:
                self._fit = self._fit * 2 if self._fit < MANY else 0
            return answer

    async def create(self, key: str, value: bytes, ttl: int) -> Item:
        loop = asyncio.get_running_loop()
        end = loop.time() + DEADLINE
        while True:
            attempt, not_abandoned = self._outcomes.attempt()
            before = self._at.revision(self._cluster.revision)
            try:
                answer, _ = await self._put(key, value, 0, ttl, not_abandoned)
            except NoSpace as error:
                return await self._stored_despite(error, key, value, before)
            except Unclear as error:
                abandoned = await self._outcomes.abandon(attempt)
                stored = await self._outcomes.find(key, value, before, abandoned)
                if stored is not None:
                    return stored
                if loop.time() >= end:
                    raise Unavailable(f"{error}; {key} was not created") from error
                continue
            if answer.succeeded:
                revision = self._at.revision(answer.header.revision)
                return Item(key, value, revision, revision)
            raise KeyExists(key, self._found(answer, key))

    async def update(self, key: str, value: bytes, expected: int, ttl: int) -> Item:
        before = max(expected, self._at.revision(self._cluster.revision))
        try:
            answer, unsure = await self._put(key, value, self._at.wire(expected) if expected else _NEVER, ttl)
        except NoSpace as error:
            return await self._stored_despite(error, key, value, before)
        current = self._found(answer, key)
        if answer.succeeded:
            assert current is not None
            return Item(key, value, self._at.revision(answer.header.revision), current.create_revision)
        if unsure and expected:
            stored = await self._outcomes.find(key, value, before, self._at.revision(answer.header.revision))
            if stored is not None:
                return stored
        if current is None:
            raise KeyNotFound(key)
        raise RevisionConflict(key, expected, current)

    async def delete(self, key: str, expected: int) -> Item:
        where = self._at.key(key)
        compare = Compare(target=Compare.MOD, key=where, mod_revision=self._at.wire(expected) if expected else 0)
        compare.result = Compare.EQUAL if expected else Compare.GREATER
        delete = RequestOp(request_delete_range=DeleteRangeRequest(key=where, prev_kv=True))
        request = TxnRequest(compare=[compare], success=[delete], failure=[_look(where)])
        unsure = False
        try:
            if expected:
                answer, unsure = await self._cluster.attempt(_TXN, request, TxnResponse)
            else:
                answer = await self._cluster.once(_TXN, request, TxnResponse)
        except Unclear as error:
            raise Unavailable(f"{error}; whether {key} was deleted is unknown") from error
        if answer.succeeded:
            last = self._at.item(answer.responses[0].response_delete_range.prev_kvs[0], key)
            return Item(key, last.value, self._at.revision(answer.header.revision), last.create_revision)
        current = self._found(answer, key)
        if unsure and (current is None or current.create_revision > expected):
            raise Unavailable(f"etcd did not answer; {key} is gone, and by whom is unknown")
        if current is None:
            raise KeyNotFound(key)
        raise RevisionConflict(key, expected, current)

    async def _put(
        self, key: str, value: bytes, wire: int, ttl: int, condition: Compare | None = None
    ) -> tuple[TxnResponse, bool]:
        """Put a key that is at etcd's revision `wire`, 0 for none; the answer has the key's state before, or what is there."""
        where = self._at.key(key)
        compare = Compare(target=Compare.MOD, result=Compare.EQUAL, key=where, mod_revision=wire)
        conditions = [compare] if condition is None else [compare, condition]
        while True:
            lease = await self._leases.for_ttl(ttl)
            put = RequestOp(request_put=PutRequest(key=where, value=value, lease=lease))
            # Of a key that was not there before there is nothing to look at.
            done = [_look(where, False), put] if wire else [put]
            request = TxnRequest(compare=conditions, success=done, failure=[_look(where)])
            try:
                if wire:
                    return await self._cluster.attempt(_TXN, request, TxnResponse)
                return await self._cluster.once(_TXN, request, TxnResponse), False
            except LeaseGone:
                self._leases.forget(lease)

    async def _stored_despite(self, error: NoSpace, key: str, value: bytes, before: int) -> Item:
        """Return what a refused put has stored all the same, else raise the refusal.

        etcd carries out the write that takes it past its quota, and refuses it afterwards (its quotaApplierV3).
        """
        answer = await self._cluster.call(_RANGE, _look(self._at.key(key), False).request_range, RangeResponse)
        stored = await self._outcomes.find(key, value, before, self._at.revision(answer.header.revision))
        if stored is None:
            raise error
        return stored

    def _found(self, answer: TxnResponse, key: str) -> Item | None:
        kvs = answer.responses[0].response_range.kvs
        return self._at.item(kvs[0], key) if kvs else None


def _look(where: bytes, value: bool = True) -> RequestOp:
    return RequestOp(request_range=RangeRequest(key=where, keys_only=not value))
