"""Restores a snapshot into etcd, through the API that everybody has: keys, not files of a member.

A restore makes the keys what the snapshot has and leaves etcd's revisions to rise as they do. Only where the snapshot has
seen more revisions than etcd (it was taken from SQLite, or from an etcd that is lost) revisions are counted from past the
snapshot's: clients that have those must not take new history for old. The offset that does so is fixed for good, so it
can be set only while etcd holds nothing of this cluster (coordinates.py).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from control.storage import archive, compactor
from control.storage.archive import Entry
from control.storage.etcd.coordinates import Coordinates
from control.storage.etcd.messages import Compare, PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse
from control.storage.etcd.save import everything
from control.storage.etcd.store import EtcdStore
from control.storage.snapshot import LEAP
from control.storage.store import Item, KeyNotFound, Unavailable

SERVERS = "/registry/masterleases/"
"""Where API servers say that they run (control/server_addresses.py)."""
MOMENTARY = (
    SERVERS,
    "/registry/leases/kube-system/kube-controller-manager",
    "/registry/leases/kube-system/kube-scheduler",
    compactor.KEY,
)
"""Keys of servers that ran when the snapshot was taken; restored it would only keep the next one waiting."""
FORGOTTEN_SECONDS = 18
TOGETHER = 64
"""Writes under way at once."""


async def restore(store: EtcdStore, snapshot: Path, *, empty: bool = False) -> int:
    """Make etcd's keys those of a snapshot and return the revision then; no API server may run on it meanwhile.

    `empty` refuses an etcd that has keys of this cluster. Raises Corrupt, Unavailable.
    """
    seen, entries = await asyncio.to_thread(archive.read, snapshot)
    await _alone(store)
    present, revision = await everything(store)
    entries = [entry for entry in entries if not entry.key.startswith(MOMENTARY)]
    if empty and present:
        raise Unavailable(f"etcd already holds {len(present)} keys under {store.at.prefix}")
    if revision < seen:
        if present:
            raise Unavailable(
                f"the snapshot's revision {seen} is ahead of etcd's, {revision}: it can be restored only into an etcd "
                f"without keys under {store.at.prefix}"
            )
        await _count_from(store, seen + LEAP)
        store = EtcdStore(store.cluster, Coordinates(store.at.prefix, seen + LEAP), store.clock)
    await _write(store, {item.key: item for item in present}, entries)
    return await store.current_revision()


async def _alone(store: EtcdStore) -> None:
    """Wait until no API server uses the store, as long as one that has just ended may still have keys."""
    for _ in range(FORGOTTEN_SECONDS):
        if not (servers := (await store.list(SERVERS)).items):
            return
        await store.clock.sleep(1)
    names = ", ".join(item.key.removeprefix(SERVERS) for item in servers)
    raise Unavailable(f"API servers run on this etcd ({names}): stop them first")


async def _count_from(store: EtcdStore, offset: int) -> None:
    """Set what is added to etcd's revisions; it only ever rises. Raises Unavailable where another did so meanwhile."""
    key, before = store.at.offset_key, store.at.offset
    compare = Compare(target=Compare.VERSION, result=Compare.EQUAL, key=key, version=0)
    if before:
        compare = Compare(target=Compare.VALUE, result=Compare.EQUAL, key=key, value=str(before).encode())
    put = RequestOp(request_put=PutRequest(key=key, value=str(offset).encode()))
    look = RequestOp(request_range=RangeRequest(key=key))
    request = TxnRequest(compare=[compare], success=[put], failure=[look])
    answer, unsure = await store.cluster.attempt("/etcdserverpb.KV/Txn", request, TxnResponse)
    if not answer.succeeded:
        found = answer.responses[0].response_range.kvs
        if unsure and found and found[0].value == str(offset).encode():
            return
        raise Unavailable(f"etcd's {key.decode()} was set by somebody else meanwhile")


async def _write(store: EtcdStore, present: dict[str, Item], entries: list[Entry]) -> None:
    """Write what differs and delete what the snapshot does not have."""
    limit = asyncio.Semaphore(TOGETHER)

    async def put(entry: Entry) -> None:
        async with limit:
            there = present.get(entry.key)
            if there is None:
                await store.create(entry.key, entry.value, entry.ttl)
            elif there.value != entry.value or entry.ttl:
                await store.update(entry.key, entry.value, there.revision, entry.ttl)

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
