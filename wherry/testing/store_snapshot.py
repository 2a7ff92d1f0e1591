"""Snapshots of a cluster's objects in memory, and the return to one.

A snapshot follows the store's changes, so that a return costs as much as what was changed. It writes the store directly:
finalizers, admission and permissions are not asked. Controllers see the changes as any others, so they may write once more for
what they have begun; the return repeats until nothing differs any more.
"""

from __future__ import annotations

import asyncio
import contextlib

from control.storage.store import Event, KeyExists, KeyNotFound, RevisionConflict, Store
from wherry.testing.errors import ClusterError

ROOT = "/registry/"
VOLATILE = ("/registry/leases/",)
"""Folders of objects that change all the time: one that was there before stays as it is."""
FIRST = (
    "deployments", "cronjobs", "horizontalpodautoscalers", "statefulsets", "daemonsets", "jobs", "replicasets", "controllers",
)  # fmt: skip
"""Folders whose objects make others: they are deleted before these."""
QUIET_SECONDS, QUIET_ROUNDS = 0.002, 3
"""Nothing differs in so many looks, with so much time between them."""
MOST_SECONDS = 10.0
FETCHED = 1000
"""Items that are read from the store at once."""


class StoreSnapshot:
    """The objects of a moment. Make it with `take`, and end it with `close`."""

    def __init__(self, store: Store, values: dict[str, bytes], revision: int) -> None:
        self._store, self._values = store, values
        self._changed: dict[str, Event] = {}
        """The newest change of each key since the snapshot or the last return to it."""
        self._revision, self._seen = revision, asyncio.Event()
        self._task = asyncio.create_task(self._follow(), name="snapshot")

    @classmethod
    async def take(cls, store: Store) -> StoreSnapshot:
        """Return a snapshot of the present state."""
        values: dict[str, bytes] = {}
        page = await store.list(ROOT, limit=FETCHED, counted=False)
        revision = page.revision
        while True:
            values.update((item.key, item.value) for item in page.items)
            if not page.more:
                return cls(store, values, revision)
            page = await store.list(ROOT, revision, page.items[-1].key, FETCHED, counted=False)

    async def close(self) -> None:
        """Stop following the store."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def changed_within(self, seconds: float) -> bool:
        """Wait so long, and return whether something has changed since the snapshot."""
        await asyncio.sleep(seconds)
        await self._catch_up()
        return bool(self._different())

    async def restore(self) -> None:
        """Make all objects what they were. Raise ClusterError if something keeps changing them."""
        quiet = 0
        try:
            async with asyncio.timeout(MOST_SECONDS):
                while quiet < QUIET_ROUNDS:
                    await self._catch_up()
                    different = self._different()
                    if different:
                        quiet = 0
                        for keys in _ordered(different):
                            await asyncio.gather(*map(self._reset, keys))
                    else:
                        quiet += 1
                        await asyncio.sleep(QUIET_SECONDS)
        except TimeoutError:
            names = ", ".join(key.removeprefix(ROOT) for key in self._different()[:5])
            raise ClusterError(f"the cluster cannot return to its snapshot: something keeps changing {names}") from None

    async def _follow(self) -> None:
        watch = self._store.watch(ROOT, self._revision)
        try:
            async for batch in watch:
                for event in batch.events:
                    self._changed[event.key] = event
                self._revision = batch.revision
                self._seen.set()
        finally:
            await watch.aclose()

    async def _catch_up(self) -> None:
        """Wait until all changes that have been written were seen."""
        wanted = await self._store.current_revision()
        while self._revision < wanted:
            if self._task.done():
                self._task.result()
                raise ClusterError("the cluster has ended")
            self._seen.clear()
            await asyncio.wait({self._task, asyncio.ensure_future(self._seen.wait())}, return_when="FIRST_COMPLETED")

    def _different(self) -> list[str]:
        """Return the keys that are not as they were, and forget those that are."""
        for key, event in list(self._changed.items()):
            before = self._values.get(key)
            now = None if event.type == "DELETED" else event.value
            if now == before or (before is not None and now is not None and key.startswith(VOLATILE)):
                del self._changed[key]
        return list(self._changed)

    async def _reset(self, key: str) -> None:
        event, before = self._changed[key], self._values.get(key)
        with contextlib.suppress(KeyNotFound, KeyExists, RevisionConflict):
            if before is None:
                await self._store.delete(key)
            elif event.type == "DELETED":
                await self._store.create(key, before)
            else:
                await self._store.update(key, before, event.revision)


def _ordered(keys: list[str]) -> tuple[list[str], list[str]]:
    """Return the keys of what makes other objects, and all others."""
    first = [key for key in keys if key.removeprefix(ROOT).partition("/")[0] in FIRST]
    return first, [key for key in keys if key not in set(first)]
