"""Compaction of etcd every five minutes, up to the revision of five minutes ago, by one of the servers that share it.

The servers coordinate through upstream's key, so upstream's API servers may share the etcd: the server that finds
`compact_rev_key` at the version that it saw last writes the revision of one interval ago into it and compacts there; the
others see a newer version and wait for another interval.
"""

from __future__ import annotations

import logging

from control.storage.etcd.errors import RevisionCompacted
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
    """Compacts the store of one server."""

    def __init__(self, store: EtcdStore, clock: Clock = SYSTEM) -> None:
        self._cluster, self._clock = store.cluster, clock

    async def run(self) -> None:
        """Compact until cancelled."""
        version = revision = 0
        while True:
            try:
                version, revision = await self._compact_once(version, revision)
            except StoreError as error:
                log.warning("compaction failed and will be retried: %s", error)
            await self._clock.sleep(INTERVAL_SECONDS)

    async def _compact_once(self, version: int, revision: int) -> tuple[int, int]:
        """Compact at `revision` (etcd's) if the key is still at `version`; return the current version and revision."""
        key = COMPACT_KEY.encode()
        mine = Compare(target=Compare.VERSION, result=Compare.EQUAL, key=key, version=version)
        put = RequestOp(request_put=PutRequest(key=key, value=str(revision).encode()))
        read_key = RequestOp(request_range=RangeRequest(key=key))
        request = TxnRequest(compare=[mine], success=[put], failure=[read_key])
        response = await self._cluster.call("/etcdserverpb.KV/Txn", request, TxnResponse)
        current = response.header.revision
        if not response.succeeded:
            found = response.responses[0].response_range.kvs
            return (found[0].version if found else 0), current
        if revision:
            try:
                compaction = CompactionRequest(revision=revision)
                await self._cluster.call("/etcdserverpb.KV/Compact", compaction, CompactionResponse)
                log.info("compacted history up to etcd's revision %d", revision)
            except RevisionCompacted:
                log.debug("etcd's revision %d was compacted already", revision)
        return version + 1, current
