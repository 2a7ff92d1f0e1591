"""Encryption at rest, configured by a file that is reloaded: new keys write at once, stored values are encrypted again.

A changed file that cannot be used, or whose plugin does not answer, changes nothing. Keys that are taken out continue
reading for as long as the server runs: watches may still replay what was written with them.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from pathlib import Path

from control.reloading import Reloaded
from control.storage import encryption_configuration
from control.storage.encrypted_store import EncryptedStore
from control.storage.encryption import Encryption, EncryptionError
from control.storage.store import Store
from kube import cancellation
from kube.clock import Clock
from kube.resources import RESOURCES

log = logging.getLogger(__name__)
PREFIXES = {r.target: r.storage_prefix for r in RESOURCES}


class EncryptionAtRest:
    """Puts an encrypted store before another; `run` follows the file and the plugins until cancelled."""

    def __init__(self, path: Path, store: Store) -> None:
        self._file = Reloaded("encryption", path)
        self._path = path
        text = self._file.first()
        assert text is not None
        self.store = EncryptedStore(store, self._read(text))

    def _read(self, text: bytes) -> Encryption:
        try:
            return encryption_configuration.parse(text, PREFIXES)
        except EncryptionError as error:
            raise EncryptionError(f"{self._path}: {error}") from error

    async def start(self) -> None:
        """Get keys from plugins, and write again what is stored in another way.

        A plugin that does not answer keeps nobody from the rest: its resources can be neither written nor read until it does.
        """
        try:
            await self.store.encryption.start()
        except EncryptionError as error:
            log.error("%s: its resources cannot be used until the plugin answers", error)
        await self.store.rewrite()

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
                await self.store.rewrite()

            def follow(encryption: Encryption) -> None:
                for provider in encryption.remote:
                    cancellation.start(group, functools.partial(provider.poll_status, clock), "follows a KMS plugin")

            follow(self.store.encryption)
            await self._file.follow(take, clock, every)

    async def close(self) -> None:
        await self.store.encryption.close()
