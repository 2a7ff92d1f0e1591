"""A store that encrypts values before they reach another store, and decrypts them afterwards.

Neither the engine's files nor its snapshots contain the plain text. `rewrite` encrypts values again that are stored under an
older key or in plain text. When it has finished, the old key can be removed from the configuration. Former configurations still
decrypt until they are dropped.

A value that cannot be decrypted affects only its readers: lists and watches contain it as an item or event with a `failure`,
and only reading that key raises. A watch waits a second at most for a key that a plugin has to supply: the watch cache has one
watch for all resources, which a slow plugin must not delay. The cache reads such values again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import NamedTuple

from msgspec.structs import replace

from control.event_loop.pacing import ServerSlice
from control.storage.encryption import PREFIX, WATCH_KEY_SECONDS, Encryption, EncryptionError
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


class Rewritten(NamedTuple):
    """Numbers of stale values: encrypted again, not decrypted, and left until their time to live ends."""

    number: int
    unreadable: int
    expiring: int = 0


class EncryptedStore:
    """Wrapper of another store that encrypts values."""

    def __init__(self, store: Store, encryption: Encryption) -> None:
        self._store, self.encryption = store, encryption
        self.former: tuple[Encryption, ...] = ()
        """Former configurations that still decrypt, the last one first."""
        # Methods without values are the engine's.
        self.compact, self.compacted_revision = store.compact, store.compacted_revision
        self.snapshot, self.current_revision, self.close = store.snapshot, store.current_revision, store.close

    def replace(self, encryption: Encryption) -> None:
        """Use another configuration from now on. Values encrypted before can still be read; `rewrite` encrypts them again."""
        self.former = (self.encryption, *self.former)
        self.encryption = encryption

    def drop(self, former: Encryption) -> None:
        """Stop decrypting with a former configuration."""
        self.former = tuple(each for each in self.former if each is not former)

    async def decrypt(self, key: str, stored: bytes, deadline: float | None = None) -> bytes:
        """Return the decrypted value; fetches its key from a plugin if it is not cached, until a deadline if there is one."""
        try:
            return await _decrypted(self.encryption, key, stored, deadline)
        except EncryptionError:
            # A former configuration must not accept plain text that the current one rejects.
            for former in self.former if stored.startswith(PREFIX) else ():
                with contextlib.suppress(EncryptionError):
                    return await _decrypted(former, key, stored, deadline)
            raise

    async def _decrypted(self, item: Item) -> Item:
        try:
            return replace(item, value=await self.decrypt(item.key, item.value))
        except EncryptionError as error:
            return replace(item, value=b"", failure=str(error))

    async def _readable(self, item: Item) -> Item:
        decrypted = await self._decrypted(item)
        if decrypted.failure:
            raise Unreadable(item.key, decrypted.failure)
        return decrypted

    async def get(self, key: str) -> Item | None:
        item = await self._store.get(key)
        return None if item is None else await self._readable(item)

    async def list(
        self, prefix: str, revision: int = 0, start_after: str = "", limit: int = 0, *, counted: bool = True
    ) -> Page:
        page = await self._store.list(prefix, revision, start_after, limit, counted=counted)
        return replace(page, items=[await self._decrypted(item) for item in page.items])

    async def create(self, key: str, value: bytes, ttl: int = 0) -> Item:
        try:
            made = await self._store.create(key, self.encryption.encrypt(key, value), ttl)
        except KeyExists as error:
            current = await self._decrypted(error.current) if error.current else None
            raise KeyExists(key, None if current is None or current.failure else current) from error
        return replace(made, value=value)

    async def update(self, key: str, value: bytes, expected_revision: int, ttl: int = 0) -> Item:
        try:
            made = await self._store.update(key, self.encryption.encrypt(key, value), expected_revision, ttl)
        except RevisionConflict as error:
            raise RevisionConflict(key, expected_revision, await self._readable(error.current)) from error
        return replace(made, value=value)

    async def delete(self, key: str, expected_revision: int = 0) -> Item:
        try:
            return await self._decrypted(await self._store.delete(key, expected_revision))
        except RevisionConflict as error:
            raise RevisionConflict(key, expected_revision, await self._readable(error.current)) from error

    def watch(self, prefix: str, after_revision: int, *, previous: bool = False) -> Watch:
        return _EncryptedWatch(self._store.watch(prefix, after_revision, previous=previous), self)

    async def rewrite(self) -> Rewritten:
        """Encrypt stale values again; those that cannot be decrypted now are skipped."""
        count, unreadable, expiring = 0, 0, 0
        async for item in self._stored():
            if not await self._stale(item):
                continue
            if item.key.startswith(_SHORT_LIVED):  # an update would remove the time to live
                expiring += 1
                continue
            try:
                count += await self._rewrite(item)
            except EncryptionError as error:
                unreadable += 1
                if unreadable == 1:
                    log.error("%s and perhaps others cannot be encrypted again: %s", item.key, error)
        if count:
            log.info("re-encrypted %d values", count)
        return Rewritten(count, unreadable, expiring)

    async def _stored(self) -> AsyncIterator[Item]:
        """Yield the stored values of the resources that the present and former configurations name."""
        rules = (rule for each in (self.encryption, *self.former) for rule in each.rules)
        for prefix in dict.fromkeys(prefix for prefix, _ in rules):
            after = ""
            while True:
                page = await self._store.list(prefix, start_after=after, limit=500)
                for item in page.items:
                    yield item
                if not page.more:
                    break
                after = page.items[-1].key

    async def _stale(self, item: Item) -> bool:
        """Return whether a value is not encrypted with the present key.

        The name of its key suffices only if no other key can have this name, as one of a former configuration may.
        """
        present = self.encryption
        if present.stale(item.key, item.value):
            return True
        if self.former or present.shared_names:
            return not await present.written_with_first(item.key, item.value)
        return False

    async def _rewrite(self, item: Item) -> int:
        value = await self.decrypt(item.key, item.value)
        try:
            await self._store.update(item.key, self.encryption.encrypt(item.key, value), item.revision)
        except (RevisionConflict, KeyNotFound):
            return 0  # another request has deleted it, or written it with the new key
        return 1


async def _decrypted(encryption: Encryption, key: str, stored: bytes, deadline: float | None) -> bytes:
    if encryption.remote:
        await encryption.fetch_key(key, stored, deadline)
    return encryption.decrypt(key, stored)


class _EncryptedWatch:
    def __init__(self, watch: Watch, store: EncryptedStore) -> None:
        self._watch, self._store = watch, store
        self.request_progress, self.aclose = watch.request_progress, watch.aclose

    def __aiter__(self) -> _EncryptedWatch:
        return self

    async def __anext__(self) -> Batch:
        batch = await self._watch.__anext__()
        deadline = asyncio.get_running_loop().time() + WATCH_KEY_SECONDS
        server_slice, events = ServerSlice(), list[Event]()
        for event in batch.events:
            await server_slice.step(len(event.value) + (len(event.previous.value) if event.previous else 0))
            events.append(await self._decrypted(event, deadline))
        return replace(batch, events=events)

    async def _decrypted(self, event: Event, deadline: float) -> Event:
        decrypt = self._store.decrypt
        try:
            before = event.previous
            if before is not None:
                before = replace(before, value=await decrypt(before.key, before.value, deadline))
            value = await decrypt(event.key, event.value, deadline) if event.value else event.value
            return replace(event, value=value, previous=before)
        except EncryptionError as error:
            return replace(event, value=b"", previous=None, failure=str(error))
