"""The store of a history: its writers' changes have no effect, and only `step` changes it.

Revisions are those of the history, so the API server's own writes (leases, defaults) must not take one. They seem to succeed.
"""

from __future__ import annotations

from control.storage.memory import MemoryStore
from control.storage.store import Item, KeyExists
from wherry.testing.history.history import Change, History


class ReplayStore(MemoryStore):
    """A store with the objects of a revision."""

    def show(self, history: History, revision: int) -> None:
        """Give a new store the objects of a revision. Raise ClusterError."""
        self.load(history.items(revision), revision, {})

    async def step(self, change: Change) -> None:
        """Write the next change of the history."""
        item = await self.get(change.key)
        if change.type == "DELETED":
            await super().delete(change.key)
        elif item is None:
            await super().create(change.key, bytes(change.value))
        else:
            await super().update(change.key, bytes(change.value), item.revision)

    async def create(self, key: str, value: bytes, ttl: int = 0) -> Item:
        if (item := await self.get(key)) is not None:
            raise KeyExists(key, item)
        revision = await self.current_revision()
        return Item(key, value, revision, revision)

    async def update(self, key: str, value: bytes, expected_revision: int, ttl: int = 0) -> Item:
        before = self._check(key, expected_revision, always=True)
        return Item(key, value, before.revision, before.create_revision)

    async def delete(self, key: str, expected_revision: int = 0) -> Item:
        return self._check(key, expected_revision)
