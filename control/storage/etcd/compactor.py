"""When etcd forgets: every five minutes, what is older than five minutes, by one of all the servers that share it.

The servers agree through upstream's key and can run beside upstream's: whoever finds `compact_rev_key` at the version it saw
last writes the revision of one interval ago into it and compacts there; the others see that the version has moved and
wait for another interval.
"""

from __future__ import annotations

import logging

from control.storage.etcd.errors import RevisionGone
from control.storage.etcd.messages import (
    CompactionRequest,
    CompactionResponse,
    Compare,
    PutRequest,
    RangeRequest,
    RequestOp,
    TxnRequest,
    TxnResponse,
)
from control.storage.etcd.store import EtcdStore
from control.storage.store import StoreError
from kube.clock import SYSTEM, Clock

log = logging.getLogger(__name__)

COMPACT_KEY = "compact_rev_key"
INTERVAL_SECONDS = 300.0


class EtcdCompactor:
    """Run one beside each store."""

    def __init__(self, store: EtcdStore, clock: Clock = SYSTEM) -> None:
        self._cluster, self._clock = store.cluster, clock

    async def run(self) -> None:
        """Compact until cancelled."""
        version = revision = 0
        while True:
            try:
                version, revision = await self._turn(version, revision)
            except StoreError as error:
                log.warning("compaction will be tried again: %s", error)
            await self._clock.sleep(INTERVAL_SECONDS)

    async def _turn(self, version: int, revision: int) -> tuple[int, int]:
        """Compact at `revision`, etcd's own, if the key is still at `version`; return both as they are now."""
        key = COMPACT_KEY.encode()
        mine = Compare(target=Compare.VERSION, result=Compare.EQUAL, key=key, version=version)
        put = RequestOp(request_put=PutRequest(key=key, value=str(revision).encode()))
        look = RequestOp(request_range=RangeRequest(key=key))
        request = TxnRequest(compare=[mine], success=[put], failure=[look])
        answer = await self._cluster.call("/etcdserverpb.KV/Txn", request, TxnResponse)
        current = answer.header.revision
        if not answer.succeeded:
            found = answer.responses[0].response_range.kvs
            return (found[0].version if found else 0), current
        if revision:
            try:
                asked = CompactionRequest(revision=revision)
                await self._cluster.call("/etcdserverpb.KV/Compact", asked, CompactionResponse)
                log.info("compacted history up to etcd's revision %d", revision)
            except RevisionGone:
                log.debug("etcd's revision %d was compacted already", revision)
        return version + 1, current
