"""A store behind which chosen values are encrypted; in everything else the engine it stands before.

Values are encrypted before they reach the engine and decrypted behind it, so neither the files of the engine nor its
snapshots show them. What is stored under an older key, or in plain text, is written anew by `rewrite`: after a rotation and
a restart the old key can go.

A value that cannot be decrypted concerns nobody but those who want it: lists and watches carry it as an item or event with
a `failure`, and only reading that one key raises.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace

from control.storage.encryption import Encryption, EncryptionError
from control.storage.store import (
    Batch,
    Event,
    Item,
    KeyExists,
    KeyNotFound,
    Page,
    RevisionConflict,
    Store,
    Unreadable,
    Watch,
)

log = logging.getLogger(__name__)
_SHORT_LIVED = "/registry/events/"


class EncryptedStore:
    """A store behind which values are encrypted; in everything else the store it stands before."""

    def __init__(self, store: Store, encryption: Encryption) -> None:
        self._store, self.encryption = store, encryption
        self._former: list[Encryption] = []
        # What is not about values is the engine's own.
        self.compact, self.compacted_revision = store.compact, store.compacted_revision
        self.snapshot, self.current_revision, self.close = store.snapshot, store.current_revision, store.close

    def replace(self, encryption: Encryption) -> None:
        """Write in another way from now on; `rewrite` brings what is stored up to it. What was written before is still read."""
        self._former.insert(0, self.encryption)
        self.encryption = encryption

    async def open(self, key: str, stored: bytes) -> bytes:
        """Return the value of what is stored; a plugin is asked where its key is not known yet."""
        try:
            return await _opened(self.encryption, key, stored)
        except EncryptionError:
            # Plain text that is not believed any more was never believed because of a key.
            for former in self._former if stored.startswith(b"k8s:enc:") else ():
                with contextlib.suppress(EncryptionError):
                    return await _opened(former, key, stored)
            raise

    async def _opened(self, item: Item) -> Item:
        try:
            return replace(item, value=await self.open(item.key, item.value))
        except EncryptionError as error:
            return replace(item, value=b"", failure=str(error))

    async def _readable(self, item: Item) -> Item:
        opened = await self._opened(item)
        if opened.failure:
            raise Unreadable(item.key, opened.failure)
        return opened

    async def get(self, key: str) -> Item | None:
        item = await self._store.get(key)
        return None if item is None else await self._readable(item)

    async def list(self, prefix: str, revision: int = 0, start_after: str = "", limit: int = 0) -> Page:
        page = await self._store.list(prefix, revision, start_after, limit)
        return replace(page, items=[await self._opened(item) for item in page.items])

    async def create(self, key: str, value: bytes, ttl: int = 0) -> Item:
        try:
            made = await self._store.create(key, self.encryption.seal(key, value), ttl)
        except KeyExists as error:
            current = await self._opened(error.current) if error.current else None
            raise KeyExists(key, None if current is None or current.failure else current) from error
        return replace(made, value=value)

    async def update(self, key: str, value: bytes, expected_revision: int, ttl: int = 0) -> Item:
        try:
            made = await self._store.update(key, self.encryption.seal(key, value), expected_revision, ttl)
        except RevisionConflict as error:
            raise RevisionConflict(key, expected_revision, await self._readable(error.current)) from error
        return replace(made, value=value)

    async def delete(self, key: str, expected_revision: int = 0) -> Item:
        try:
            return await self._opened(await self._store.delete(key, expected_revision))
        except RevisionConflict as error:
            raise RevisionConflict(key, expected_revision, await self._readable(error.current)) from error

    def watch(self, prefix: str, after_revision: int, previous: bool = False) -> Watch:
        return _EncryptedWatch(self._store.watch(prefix, after_revision, previous), self)

    async def rewrite(self) -> int:
        """Write anew what is stored in an older way and return how many values that were; unreadable ones are left."""
        count = 0
        for prefix in dict.fromkeys(prefix for prefix, _ in self.encryption.rules):
            after = ""
            while True:
                page = await self._store.list(prefix, start_after=after, limit=500)
                for item in page.items:
                    # What has a time to live is left to go by itself: a new write would make it stay.
                    if item.key.startswith(_SHORT_LIVED):
                        continue
                    if self.encryption.stale(item.key, item.value):
                        count += await self._rewrite(item)
                if not page.more:
                    break
                after = page.items[-1].key
        if count:
            log.info("encrypted %d values anew", count)
        return count

    async def _rewrite(self, item: Item) -> int:
        try:
            value = await self.open(item.key, item.value)
        except EncryptionError as error:
            log.error("%s is not encrypted anew: %s", item.key, error)
            return 0
        try:
            await self._store.update(item.key, self.encryption.seal(item.key, value), item.revision)
        except (RevisionConflict, KeyNotFound):
            return 0  # somebody wrote or deleted it meanwhile, and wrote it the new way
        return 1


async def _opened(encryption: Encryption, key: str, stored: bytes) -> bytes:
    if encryption.learning:
        await encryption.learn(key, stored)
    return encryption.open(key, stored)


class _EncryptedWatch:
    def __init__(self, watch: Watch, store: EncryptedStore) -> None:
        self._watch, self._store = watch, store
        self.request_progress, self.aclose = watch.request_progress, watch.aclose

    def __aiter__(self) -> _EncryptedWatch:
        return self

    async def __anext__(self) -> Batch:
        batch = await self._watch.__anext__()
        return replace(batch, events=[await self._opened(event) for event in batch.events])

    async def _opened(self, event: Event) -> Event:
        try:
            before = event.previous
            if before is not None:
                before = replace(before, value=await self._store.open(before.key, before.value))
            value = await self._store.open(event.key, event.value) if event.value else event.value
            return replace(event, value=value, previous=before)
        except EncryptionError as error:
            return replace(event, value=b"", previous=None, failure=str(error))
