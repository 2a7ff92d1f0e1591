"""Current revision and oldest kept revision of etcd.

The current one is asked for by every read that must not be stale, so reads share the question: one that comes while it is
being asked waits for the next asking, because the answer under way may be older than the read. The question is a
linearizable range that counts one key; the answer's header has the revision.

etcd does not tell the compacted revision but to a watch that starts before it, so that is what asks here.
"""

from __future__ import annotations

import asyncio

import grpc.aio

from control.storage.etcd.cluster import END, Cluster
from control.storage.etcd.coordinates import Coordinates
from control.storage.etcd.errors import RevisionGone, translate
from control.storage.etcd.messages import (
    RangeRequest,
    RangeResponse,
    WatchCreateRequest,
    WatchRequest,
    WatchResponse,
)
from control.storage.store import Unavailable

_NOWHERE = b"\0"
FIRST = 1
ANSWER_SECONDS = 5.0


class Revisions:
    """Answers both questions, in the contract's revisions."""

    def __init__(self, cluster: Cluster, at: Coordinates) -> None:
        self._cluster, self._at = cluster, at
        self._asking: asyncio.Task[int] | None = None
        self._next: asyncio.Task[int] | None = None

    async def current(self) -> int:
        """Return a revision not older than any write that was acknowledged before the call."""
        if self._asking is None or self._asking.done():
            task = self._asking = asyncio.create_task(self._ask(), name="etcd-revision")
        elif self._next is None or self._next.done():
            task = self._next = asyncio.create_task(self._ask_after(self._asking), name="etcd-revision")
        else:
            task = self._next
        return await asyncio.shield(task)

    async def _ask_after(self, before: asyncio.Task[int]) -> int:
        await asyncio.wait({before})
        # From here on this is the asking under way, and who comes now waits for another one.
        self._asking, self._next = asyncio.current_task(), None
        return await self._ask()

    async def _ask(self) -> int:
        asked = RangeRequest(key=_NOWHERE, count_only=True)
        answer = await self._cluster.call("/etcdserverpb.KV/Range", asked, RangeResponse)
        return self._at.revision(answer.header.revision)

    async def compacted(self) -> int:
        """Return the revision of the last compaction, 0 if there was none."""
        try:
            asked = RangeRequest(key=_NOWHERE, count_only=True, revision=FIRST)
            await self._cluster.call("/etcdserverpb.KV/Range", asked, RangeResponse)
            return self._at.offset
        except RevisionGone:
            pass
        at, stream = self._cluster.stream("/etcdserverpb.Watch/Watch", WatchResponse)
        try:
            create = WatchCreateRequest(key=_NOWHERE, start_revision=FIRST)
            async with asyncio.timeout(ANSWER_SECONDS):
                await stream.write(WatchRequest(create_request=create))
                while (answer := await stream.read()) is not END:
                    if answer.compact_revision:
                        return self._at.revision(answer.compact_revision)
            raise Unavailable("etcd ended a watch without saying why")
        except TimeoutError as error:
            self._cluster.turn_from(at, "no answer to a watch")
            raise Unavailable("etcd does not say what it compacted") from error
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise Unavailable("the etcd member was left") from error
        except grpc.aio.AioRpcError as error:
            self._cluster.turn_from(at, error.details() or "")
            raise translate(error) from error
        finally:
            stream.cancel()
