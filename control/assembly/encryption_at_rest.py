"""Encryption at rest, configured by a file that is reloaded: new keys write at once, stored values are encrypted again.

A changed file that cannot be used, or whose plugin does not answer, changes nothing until a later attempt succeeds. Keys that
are taken out continue reading for as long as the server runs: watches may still replay what was written with them.

Values are encrypted again by a loop of its own, which is repeated until none is stale: the store or a plugin may be away. A
changed configuration starts it at once.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from pathlib import Path

from control.assembly.reloading import Reloaded
from control.storage import encryption_configuration
from control.storage.encrypted_store import EncryptedStore
from control.storage.encryption import Encryption, EncryptionError
from control.storage.store import Store, StoreError
from kube import cancellation
from kube.clock import Clock
from kube.resources import RESOURCES

log = logging.getLogger(__name__)
FIRST_RETRY, LAST_RETRY = 1.0, 300.0
"""Seconds between attempts to encrypt the rest of the stale values."""
PREFIXES = {r.target: r.storage_prefix for r in RESOURCES}


class EncryptionAtRest:
    """Puts an encrypted store before another; `run` follows the file and the plugins until cancelled."""

    def __init__(self, path: Path, store: Store) -> None:
        self._file = Reloaded("encryption", path)
        self._path = path
        text = self._file.first()
        assert text is not None
        self.store = EncryptedStore(store, self._read(text))
        self._stale = asyncio.Event()
        """Set if there may be values to encrypt again."""

    def _read(self, text: bytes) -> Encryption:
        try:
            return encryption_configuration.parse(text, PREFIXES)
        except EncryptionError as error:
            raise EncryptionError(f"{self._path}: {error}") from error

    async def start(self) -> None:
        """Get keys from plugins, and write again what is stored in another way, as far as it can be read.

        A plugin that does not answer keeps nobody from the rest: its resources can be neither written nor read until it does.
        """
        try:
            await self.store.encryption.start()
        except EncryptionError as error:
            log.error("%s: its resources cannot be used until the plugin answers", error)
            self._stale.set()  # without its key it is not known which values are stale
        if (await self.store.rewrite()).unreadable:
            self._stale.set()

    def check(self) -> str | None:
        """Say what is wrong with the plugins; None if nothing is."""
        return self.store.encryption.check()

    async def run(self, clock: Clock, every: float) -> None:
        """Follow the file and the plugins until cancelled."""
        async with asyncio.TaskGroup() as group:

            async def take(text: bytes) -> None:
                fresh = self._read(text)
                try:
                    await fresh.start()
                except EncryptionError:
                    await fresh.close()
                    raise
                self.store.replace(fresh)
                follow(fresh)
                self._stale.set()

            def follow(encryption: Encryption) -> None:
                for provider in encryption.remote:
                    cancellation.start(group, functools.partial(provider.poll_status, clock), "follows a KMS plugin")

            follow(self.store.encryption)
            cancellation.start(group, functools.partial(self._rewrite, clock), "encrypts stored values again")
            await self._file.follow(take, clock, every)

    async def _rewrite(self, clock: Clock) -> None:
        """Encrypt stale values again after each change of the configuration, until cancelled."""
        delay, failed = FIRST_RETRY, False
        while True:
            await self._stale.wait()
            self._stale.clear()
            try:
                left = (await self.store.rewrite()).unreadable
                why = f"{left} values cannot be decrypted" if left else self.check() or ""
            except StoreError as error:
                why = str(error)
            except Exception:
                self._stale.set()  # the loop is started again
                raise
            if not why:
                if failed:
                    log.info("all values are encrypted with the current key")
                delay, failed = FIRST_RETRY, False
                continue
            failed = True
            log.error("not all values are encrypted with the current key, keep the former one: %s", why)
            if await self._changes_within(clock, delay):
                delay = FIRST_RETRY
            else:
                self._stale.set()
                delay = min(delay * 2, LAST_RETRY)

    async def _changes_within(self, clock: Clock, seconds: float) -> bool:
        """Wait for another configuration for a time at most, and return whether there is one."""
        waits = (asyncio.create_task(self._stale.wait()), asyncio.create_task(clock.sleep(seconds)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        return self._stale.is_set()

    async def close(self) -> None:
        await self.store.encryption.close()
