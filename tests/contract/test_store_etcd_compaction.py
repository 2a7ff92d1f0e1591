"""Compaction and leader changes during watches: the watch caches of two servers stay equal to etcd.

Writers change a few keys all the time, history is compacted right up to the newest revision, and each member in turn, so the
leader too, stands still for longer than an election takes or is killed. A follower that misses a change after that shows it
for ever, for nothing else tells it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from pathlib import Path

from control.storage import codec
from control.storage.cache import WatchCache
from control.storage.etcd.store import EtcdStore
from control.storage.list_watch import list_and_watch
from control.storage.resource_cache import ResourceCache
from control.storage.store import KeyExists, KeyNotFound, RevisionConflict, StoreError, Unavailable
from tests.support.etcd import Etcd, Member, etcd, needs_etcd, open_etcd

pytestmark = needs_etcd
PREFIX = "/registry/configmaps/"
State = dict[str, int]
STILL_SECONDS = 1.5
"""Elections are due after 0.5 s here."""


class Writer:
    """Creates, changes and deletes the keys of its own and keeps what was acknowledged."""

    def __init__(self, store: EtcdStore, number: int) -> None:
        self._store, self._chance = store, random.Random(number)
        self._keys = [f"{PREFIX}default/w{number}-{i}" for i in range(3)]
        self.state: State = {}
        self.acknowledged = 0

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            key = self._chance.choice(self._keys)
            try:
                await self._change(key)
                self.acknowledged += 1
            except (Unavailable, KeyExists, KeyNotFound, RevisionConflict):
                await self._read_key(key)

    async def _change(self, key: str) -> None:
        value = codec.encode({"metadata": {"name": key.rpartition("/")[2]}, "n": str(self._chance.random())})
        revision = self.state.get(key)
        if revision is None:
            self.state[key] = (await self._store.create(key, value)).revision
        elif self._chance.random() < 0.5:
            await self._store.delete(key, revision)
            del self.state[key]
        else:
            self.state[key] = (await self._store.update(key, value, revision)).revision

    async def _read_key(self, key: str) -> None:
        """Read what became of a write without an answer; nobody else writes this key."""
        while True:
            with contextlib.suppress(Unavailable):
                item = await self._store.get(key)
                break
        self.state.pop(key, None)
        if item is not None:
            self.state[key] = item.revision


class Follower:
    """The state that the updates of a resource add up to."""

    def __init__(self, cache: WatchCache, resource: ResourceCache) -> None:
        self.state: State = {}
        self.wholes = 0
        self._cache, self._resource = cache, resource

    async def run(self) -> None:
        async with contextlib.aclosing(list_and_watch(self._cache, self._resource)) as updates:
            async for update in updates:
                if update.is_list:
                    self.state, self.wholes = {}, self.wholes + 1
                for watch_event in update.watch_events:
                    if watch_event.type == "DELETED":
                        del self.state[watch_event.entry.key]
                    else:
                        self.state[watch_event.entry.key] = watch_event.entry.revision


async def compact(store: EtcdStore, stop: asyncio.Event, compactions: list[int]) -> None:
    """Compact up to the newest revision, or to one just before it."""
    chance = random.Random(1)
    while not stop.is_set():
        with contextlib.suppress(StoreError):
            revision = await store.current_revision() - chance.randrange(3)
            await store.compact(revision)
            compactions.append(revision)
        await asyncio.sleep(chance.uniform(0, 0.05))


async def disturb(cluster: Etcd, member: Member, kill: bool) -> None:
    """Have one member stand still, or killed and started again."""
    assert member.process is not None
    if kill:
        member.kill()
        member.start()
    else:
        member.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(STILL_SECONDS)
        member.process.send_signal(signal.SIGCONT)
    await cluster.wait_healthy(member)


async def more(writers: list[Writer], count: int = 100) -> None:
    before = sum(writer.acknowledged for writer in writers)
    async with asyncio.timeout(60):
        while sum(writer.acknowledged for writer in writers) < before + count:
            await asyncio.sleep(0.02)


async def test_no_change_is_missed_where_history_is_compacted_and_the_leader_changes(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(etcd(tmp_path / "etcd", members=3))
        stores = [await open_etcd(cluster) for _ in range(2)]
        for store in stores:
            stack.push_async_callback(store.close)
        caches = [WatchCache(store) for store in stores]
        resources = [cache.resource(PREFIX, "ConfigMap", "v1") for cache in caches]
        followers = [Follower(*pair) for pair in zip(caches, resources, strict=True)]
        writers = [Writer(stores[number % 2], number) for number in range(4)]
        stop, compactions = asyncio.Event(), list[int]()
        running = [asyncio.create_task(cache.run()) for cache in caches]
        running += [asyncio.create_task(follower.run()) for follower in followers]
        try:
            async with asyncio.TaskGroup() as group:
                for writer in writers:
                    group.create_task(writer.run(stop))
                group.create_task(compact(stores[0], stop, compactions))
                for number, member in enumerate([*cluster.members, *cluster.members]):
                    await more(writers)
                    await disturb(cluster, member, kill=number >= len(cluster.members))
                await more(writers)
                async with asyncio.timeout(60):
                    while len(compactions) <= 20:  # their number until here depends on how fast the writes were
                        await asyncio.sleep(0.02)
                stop.set()
            present = {item.key: item.revision for item in (await stores[0].list(PREFIX)).items}
            assert {key: revision for writer in writers for key, revision in writer.state.items()} == present
            for cache, resource, follower in zip(caches, resources, followers, strict=True):
                await cache.wait_current()
                assert {entry.key: entry.revision for entry in resource.list().entries} == present
                async with asyncio.timeout(10):
                    while follower.state != present:
                        await asyncio.sleep(0.02)
            assert not any(task.done() for task in running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
