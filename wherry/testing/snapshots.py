"""Snapshots of a cluster for tests: its objects, its simulated nodes and the scripts of their pods."""

from __future__ import annotations

import asyncio

from control.controllers.identities import ACCOUNTS
from control.storage.store import Store
from wherry.testing.engine import Engine
from wherry.testing.errors import ClusterError
from wherry.testing.nodes.handlers import Handler
from wherry.testing.nodes.scripts import Script
from wherry.testing.store_snapshot import StoreSnapshot

LOOK_SECONDS, QUIET_SECONDS = 0.01, 0.05
MOST_SECONDS = 60.0
"""Limit of the wait for a cluster in which nothing changes."""


class AsyncSnapshot:
    """A state of a cluster that `restore` returns to, as often as wanted."""

    def __init__(
        self,
        engine: Engine,
        objects: StoreSnapshot,
        nodes: list[str],
        scripts: list[Script],
        handlers: list[Handler],
    ) -> None:
        self._engine, self._objects, self._nodes = engine, objects, nodes
        self._scripts, self._handlers = scripts, handlers

    @classmethod
    async def take(cls, engine: Engine) -> AsyncSnapshot:
        """Return a snapshot of the present state, once the controllers have begun and nothing changes any more.

        Raise ClusterError if something changes for a minute.
        """
        objects = await objects_at_rest(engine.api.store)
        return cls(engine, objects, engine.nodes.names(), engine.scripts.saved(), engine.handlers.saved())

    async def restore(self) -> None:
        """Make objects, nodes and scripts what they were. Nodes that had failed run again."""
        self._engine.scripts.restore(self._scripts)
        self._engine.handlers.restore(self._handlers)
        await self._engine.nodes.restore(self._nodes)
        await self._objects.restore()

    async def close(self) -> None:
        """Release the snapshot. The end of the cluster does so too."""
        await self._objects.close()


async def objects_at_rest(store: Store) -> StoreSnapshot:
    """Return a snapshot of the store when the controllers' accounts exist and nothing has changed for a moment.

    Raise ClusterError if something changes for a minute.
    """
    try:
        async with asyncio.timeout(MOST_SECONDS):
            return await _at_rest(store)
    except TimeoutError:
        raise ClusterError(f"no snapshot: objects of the cluster change for {MOST_SECONDS:g} s") from None


async def _at_rest(store: Store) -> StoreSnapshot:
    for account in sorted(set(ACCOUNTS.values())):
        while await store.get(f"/registry/serviceaccounts/kube-system/{account}") is None:
            await asyncio.sleep(LOOK_SECONDS)
    while True:
        objects = await StoreSnapshot.take(store)
        try:
            if not await objects.changed_within(QUIET_SECONDS):
                return objects
        except BaseException:
            await objects.close()
            raise
        await objects.close()
