"""Restores a snapshot into etcd through its API: keys, not files of a member.

A restore makes the keys equal to the snapshot's; etcd assigns new revisions. If the snapshot has newer revisions than etcd (it
was taken from SQLite, or from an etcd that is lost), an offset makes all later revisions newer than the snapshot's, because
clients that know those must not mistake the new history for the old one. The offset is permanent, so it can be set only
while etcd has no keys of this cluster (mapping.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from control.storage import archive, compactor
from control.storage.archive import Entry
from control.storage.etcd.mapping import EtcdMapping
from control.storage.etcd.messages import Compare, PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse
from control.storage.etcd.save import list_all
from control.storage.etcd.store import EtcdStore
from control.storage.snapshot import REVISION_BUMP
from control.storage.store import Item, KeyNotFound, Unavailable

SERVERS = "/registry/masterleases/"
"""Leases of running API servers (control/server_tasks/server_addresses.py)."""
EPHEMERAL = (
    SERVERS,
    "/registry/leases/kube-system/kube-controller-manager",
    "/registry/leases/kube-system/kube-scheduler",
    compactor.KEY,
)
"""Keys of servers that ran when the snapshot was taken; restored, they would only delay the next one."""
SERVER_LEASE_SECONDS = 18
MAX_CONCURRENT_WRITES = 64
"""Maximum number of concurrent writes."""


Count = Callable[[int, int], None]
"""Called with the numbers of keys that are written and of all keys."""


async def restore(
    store: EtcdStore, snapshot: Path, *, empty: bool = False, count: Count = lambda written, keys: None
) -> int:
    """Make etcd's keys equal to those of a snapshot and return the new revision; no API server may use it meanwhile.

    `empty` rejects an etcd that has keys of this cluster. Raises Corrupt, Unavailable.
    """
    seen, entries = await asyncio.to_thread(archive.read, snapshot)
    await _wait_until_unused(store)
    present, revision = await list_all(store)
    entries = [entry for entry in entries if not entry.key.startswith(EPHEMERAL)]
    if empty and present:
        raise Unavailable(f"etcd already holds {len(present)} keys under {store.mapping.prefix}")
    if revision < seen:
        if present:
            raise Unavailable(
                f"the snapshot's revision {seen} is ahead of etcd's, {revision}: it can be restored only into an etcd "
                f"without keys under {store.mapping.prefix}"
            )
        await _set_offset(store, seen + REVISION_BUMP)
        store = EtcdStore(store.cluster, EtcdMapping(store.mapping.prefix, seen + REVISION_BUMP), store.clock)
    await _write(store, {item.key: item for item in present}, entries, count)
    return await store.current_revision()


async def _wait_until_unused(store: EtcdStore) -> None:
    """Wait until no API server uses the store, until the leases of terminated ones have expired."""
    for _ in range(SERVER_LEASE_SECONDS):
        if not (servers := (await store.list(SERVERS)).items):
            return
        await store.clock.sleep(1)
    names = ", ".join(item.key.removeprefix(SERVERS) for item in servers)
    raise Unavailable(f"API servers run on this etcd ({names}): stop them first")


async def _set_offset(store: EtcdStore, offset: int) -> None:
    """Set the offset of revisions, which only increases. Raises Unavailable if another process has set it meanwhile."""
    key, before = store.mapping.offset_key, store.mapping.offset
    compare = Compare(target=Compare.VERSION, result=Compare.EQUAL, key=key, version=0)
    if before:
        compare = Compare(target=Compare.VALUE, result=Compare.EQUAL, key=key, value=str(before).encode())
    put = RequestOp(request_put=PutRequest(key=key, value=str(offset).encode()))
    read_key = RequestOp(request_range=RangeRequest(key=key))
    request = TxnRequest(compare=[compare], success=[put], failure=[read_key])
    response, unsure = await store.cluster.call_conditional("/etcdserverpb.KV/Txn", request, TxnResponse)
    if not response.succeeded:
        found = response.responses[0].response_range.kvs
        if unsure and found and found[0].value == str(offset).encode():
            return
        raise Unavailable(f"etcd's {key.decode()} was set by somebody else meanwhile")


async def _write(store: EtcdStore, present: dict[str, Item], entries: list[Entry], count: Count) -> None:
    """Write keys that differ and delete keys that the snapshot does not have."""
    limit = asyncio.Semaphore(MAX_CONCURRENT_WRITES)
    written = 0

    async def put(entry: Entry) -> None:
        nonlocal written
        async with limit:
            there = present.get(entry.key)
            if there is None:
                await store.create(entry.key, entry.value, entry.ttl)
            elif there.value != entry.value or entry.ttl:
                await store.update(entry.key, entry.value, there.revision, entry.ttl)
        written += 1
        count(written, len(entries))

    async def delete(key: str) -> None:
        async with limit:
            try:
                await store.delete(key)
            except KeyNotFound:
                return

    wanted = {entry.key for entry in entries}
    try:
        async with asyncio.TaskGroup() as group:
            for key in present.keys() - wanted:
                group.create_task(delete(key), name=f"restore {key}")
            for entry in entries:
                group.create_task(put(entry), name=f"restore {entry.key}")
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed
