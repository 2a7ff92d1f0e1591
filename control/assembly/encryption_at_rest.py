"""Encryption at rest, configured by a file that is reloaded: new keys encrypt at once, stored values are encrypted again.

A changed file that is invalid, or whose plugin does not answer, changes nothing until a later attempt succeeds. Keys that were
removed from the file still decrypt until all values are encrypted again, and for FORMER_SECONDS more, because watches and paged
lists may read older revisions. Events are not encrypted again: the keys decrypt until the last older event has expired.
Upstream drops removed keys at once, and values that are encrypted with them become unreadable.

A key is not identified by its name: another secret under the same name is another key, and values of the former one are
encrypted again. With aescbc, which does not detect a wrong key, such a configuration is rejected.

A loop encrypts values again until none is stale, because the store or a plugin may be unavailable. A changed configuration
starts it at once.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Sequence
from pathlib import Path

from control.assembly.reloading import Reloaded
from control.storage import encryption_configuration
from control.storage.compactor import INTERVAL_SECONDS
from control.storage.encrypted_store import EncryptedStore
from control.storage.encryption import Cbc, Encryption, EncryptionError, described
from control.storage.store import Store, StoreError
from kube import cancellation
from kube.clock import Clock
from kube.resources import RESOURCES

log = logging.getLogger(__name__)
FIRST_RETRY, LAST_RETRY = 1.0, 300.0
"""Seconds between attempts to encrypt the rest of the stale values."""
FORMER_SECONDS = 2 * INTERVAL_SECONDS
"""Seconds for which a former configuration decrypts after all values were encrypted again: then the compactor has removed the
older revisions. Compactions are not awaited, because clients that write to the store could prevent them."""
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
        self._rewritten = asyncio.Event()
        """Set if all values were encrypted again with the present configuration."""
        self._following: dict[Encryption, list[asyncio.Task[None]]] = {}

    def _read(self, text: bytes) -> Encryption:
        try:
            return encryption_configuration.parse(text, PREFIXES)
        except EncryptionError as error:
            raise EncryptionError(f"{self._path}: {error}") from error

    def _check_names(self, fresh: Encryption) -> None:
        """Warn if a key has another secret than before; raises EncryptionError if a wrong key would not be detected."""
        for former in (self.store.encryption, *self.store.former):
            for key in fresh.replaced_keys(former):
                if isinstance(key, Cbc):
                    raise EncryptionError(
                        f"{self._path}: {described(key)} has another secret than before: values would be misread, "
                        "because aescbc does not detect a wrong key; give the new key another name"
                    )
                log.warning(
                    "%s: %s has another secret than before; what is stored with that one is encrypted again, but a restart "
                    "before the end makes the rest unreadable unless the file contains both: give new keys other names",
                    self._path,
                    described(key),
                )

    async def start(self) -> None:
        """Get keys from plugins, and encrypt stale values again if they can be decrypted.

        If a plugin does not answer, its resources can be neither written nor read until it does; others are not affected.
        """
        try:
            await self.store.encryption.start()
        except EncryptionError as error:
            log.error("%s: its resources cannot be used until the plugin answers", error)
            self._stale.set()  # which values are stale is unknown without its key
        if (await self.store.rewrite()).unreadable:
            self._stale.set()

    def check(self) -> str | None:
        """Return the error of a plugin; None if all work."""
        return self.store.encryption.check()

    async def run(self, clock: Clock, every: float) -> None:
        """Follow the file and the plugins until cancelled."""
        async with asyncio.TaskGroup() as group:

            async def take(text: bytes) -> None:
                fresh = self._read(text)
                self._check_names(fresh)
                try:
                    await fresh.start()
                except EncryptionError:
                    await fresh.close()
                    raise
                self.store.replace(fresh)
                follow(fresh)
                self._stale.set()

            def follow(encryption: Encryption) -> None:
                self._following[encryption] = [
                    cancellation.start(group, functools.partial(each.poll_status, clock), "follows a KMS plugin")
                    for each in encryption.remote
                ]

            follow(self.store.encryption)
            cancellation.start(group, functools.partial(self._rewrite, clock), "encrypts stored values again")
            cancellation.start(group, functools.partial(self._drop_former, clock), "drops former encryption keys")
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
                if not self._stale.is_set():  # there is no newer configuration
                    self._rewritten.set()
                continue
            failed = True
            log.error("not all values are encrypted with the current key, keep the former one: %s", why)
            if await self._changes_within(clock, delay):
                delay = FIRST_RETRY
            else:
                self._stale.set()
                delay = min(delay * 2, LAST_RETRY)

    async def _drop_former(self, clock: Clock) -> None:
        """Drop former configurations a while after all values were encrypted again, until cancelled."""
        while True:
            await self._rewritten.wait()
            self._rewritten.clear()
            try:
                if former := self.store.former:
                    await clock.sleep(FORMER_SECONDS)
                    await self._drop_if_unused(former)
            except BaseException:
                self._rewritten.set()  # the loop is started again
                raise

    async def _drop_if_unused(self, former: Sequence[Encryption]) -> None:
        try:
            # Requests that had encrypted their values before, and other servers, may have written since.
            found = await self.store.rewrite()
        except StoreError as error:
            log.warning("former encryption keys cannot be dropped yet: %s", error)
            self._stale.set()
            return
        if found.expiring:
            log.info("former encryption keys are dropped after the last of %d events has expired", found.expiring)
        if found.unreadable or found.expiring:
            self._stale.set()
            return
        for each in former:
            await self._drop(each)
        log.info("values of former encryption configurations are not accepted any more")

    async def _drop(self, former: Encryption) -> None:
        self.store.drop(former)
        for task in self._following.pop(former, ()):
            task.cancel()
        await former.close()

    async def _changes_within(self, clock: Clock, seconds: float) -> bool:
        """Return whether another configuration comes within some seconds."""
        waits = (asyncio.create_task(self._stale.wait()), asyncio.create_task(clock.sleep(seconds)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        return self._stale.is_set()

    async def close(self) -> None:
        for each in (self.store.encryption, *self.store.former):
            await each.close()
