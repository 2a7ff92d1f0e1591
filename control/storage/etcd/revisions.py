"""Current revision and compacted revision of etcd.

Each consistent read needs the current revision, so reads share requests for it: a read that arrives while a request is
running waits for the next request, because the response to the running one may be older than the read. The request is a
linearizable range that counts one key; the header of the response has the revision.

etcd reports the compacted revision only to a watch that starts before it, so `compacted` starts one.
"""

from __future__ import annotations

import asyncio

import grpc.aio

from control.storage.etcd.cluster import END, Cluster
from control.storage.etcd.errors import RevisionCompacted, translate
from control.storage.etcd.mapping import EtcdMapping
from control.storage.etcd.messages import (
    RangeRequest,
    RangeResponse,
    WatchCreateRequest,
    WatchRequest,
    WatchResponse,
)
from control.storage.store import Unavailable

NOWHERE = b"\0"
FIRST = 1
RESPONSE_SECONDS = 5.0


class Revisions:
    """Both revisions, as the store interface counts them."""

    def __init__(self, cluster: Cluster, mapping: EtcdMapping) -> None:
        self._cluster, self._mapping = cluster, mapping
        self._running: asyncio.Task[int] | None = None
        self._next: asyncio.Task[int] | None = None

    async def current(self) -> int:
        """Return a revision not older than any write that was acknowledged before the call."""
        if self._running is None or self._running.done():
            task = self._running = asyncio.create_task(self._request(), name="etcd-revision")
        elif self._next is None or self._next.done():
            task = self._next = asyncio.create_task(self._request_after(self._running), name="etcd-revision")
        else:
            task = self._next
        return await asyncio.shield(task)

    async def _request_after(self, before: asyncio.Task[int]) -> int:
        await asyncio.wait({before})
        # From here on this is the running request: reads that arrive now wait for another one.
        self._running, self._next = asyncio.current_task(), None
        return await self._request()

    async def _request(self) -> int:
        request = RangeRequest(key=NOWHERE, count_only=True)
        response = await self._cluster.call("/etcdserverpb.KV/Range", request, RangeResponse)
        return self._mapping.store_revision(response.header.revision)

    async def compacted(self) -> int:
        """Return the revision of the last compaction, 0 if there was none."""
        try:
            request = RangeRequest(key=NOWHERE, count_only=True, revision=FIRST)
            await self._cluster.call("/etcdserverpb.KV/Range", request, RangeResponse)
            return self._mapping.offset
        except RevisionCompacted:
            pass
        at, stream = self._cluster.stream("/etcdserverpb.Watch/Watch", WatchResponse)
        try:
            create = WatchCreateRequest(key=NOWHERE, start_revision=FIRST)
            async with asyncio.timeout(RESPONSE_SECONDS):
                await stream.write(WatchRequest(create_request=create))
                while (response := await stream.read()) is not END:
                    if response.compact_revision:
                        return self._mapping.store_revision(response.compact_revision)
            raise Unavailable("etcd ended a watch without a reason")
        except TimeoutError as error:
            self._cluster.fail_over(at, "no response to a watch")
            raise Unavailable("etcd does not report its compacted revision") from error
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise Unavailable("the etcd member was left") from error
        except grpc.aio.AioRpcError as error:
            self._cluster.fail_over(at, error.details() or "")
            raise translate(error) from error
        finally:
            stream.cancel()
