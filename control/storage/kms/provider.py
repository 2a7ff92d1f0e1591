"""Encryption with a key of a KMS plugin: each value has its own key, derived from a seed that the plugin has encrypted.

The seed is generated once for each key of the plugin, so writes need no call of the plugin. Stored with a value are the
encrypted seed, the plugin's key ID and 32 random bytes. The value's key is derived from these bytes and the seed
(HKDF-SHA256, expand only; AES-256-GCM), as in upstream since v1.29. Reading a value whose seed is not cached calls the plugin
(`fetch_key`); a thousand seeds are cached.

All readers of a seed share one call. Failures are cached, too: otherwise each value would wait for the timeout of another call.
A failure is the seed's alone, because the backend of one key may be away while others work. It applies to all seeds only if the
plugin does not answer Status either, or the calls for several seeds in succession.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from google.protobuf.message import DecodeError

from control.storage.encryption import WATCH_KEY_SECONDS, EncryptionError
from control.storage.kms.messages import HKDF_SHA256_XNONCE_AES_GCM_SEED, EncryptedObject
from control.storage.kms.plugin import EncryptedSeed, Plugin, PluginUnavailable
from kube.clock import Clock

log = logging.getLogger(__name__)
CHECK_SECONDS = 60.0
"""Interval of Status calls, which return the plugin's health and current key ID."""
RETRY_SECONDS = 3.0
"""Interval of retries of a failed plugin, as in upstream."""
UNANSWERED_SEEDS = 3
"""Number of seeds in succession whose calls are not answered after which the plugin counts as unavailable."""
INFO, NONCE = 32, 12
CACHED_SEEDS = 1000


@dataclass(frozen=True, slots=True)
class _Failure:
    message: str
    retry_at: float
    number: int = 1
    """Of failures in succession; the interval of retries is doubled with each of them, up to CHECK_SECONDS."""


def _failure(error: EncryptionError, former: _Failure | None = None) -> _Failure:
    number = former.number + 1 if former is not None else 1
    interval = RETRY_SECONDS * 2 ** min(number - 1, 10)
    retry_at = asyncio.get_running_loop().time() + min(interval, max(RETRY_SECONDS, CHECK_SECONDS))
    return _Failure(str(error), retry_at, number)


@dataclass(frozen=True, slots=True)
class _Call:
    """A Decrypt call under way; its result is the error."""

    task: asyncio.Task[EncryptionError | None]
    started: float


class KmsProvider:
    """A provider as `encryption.Provider`; `start` must have been called."""

    def __init__(self, plugin: Plugin) -> None:
        self.prefix = f"k8s:enc:kms:v2:{plugin.name}:".encode()
        self._plugin = plugin
        self._seeds: OrderedDict[bytes, bytes] = OrderedDict()
        self._calls: dict[bytes, _Call] = {}
        self._failed: OrderedDict[bytes, _Failure] = OrderedDict()
        """Seeds that the plugin failed to decrypt: many values share a seed."""
        self._unavailable: _Failure | None = None
        """Circuit breaker for the whole plugin."""
        self._unanswered: set[bytes] = set()
        """Seeds of Decrypt calls that ended with UNAVAILABLE or DEADLINE_EXCEEDED since the last that was answered."""
        self._status_call: asyncio.Task[str] | None = None
        self._closed = False
        self._write_seed: tuple[bytes, EncryptedSeed] | None = None
        self.problem: str | None = None
        """Error of the plugin; None if it works."""

    async def start(self) -> None:
        """Generate a seed for writes; raises EncryptionError."""
        try:
            await self._check()
            self.problem = None
        except EncryptionError as error:
            self.problem = str(error)
            raise

    async def _check(self) -> None:
        key_id = await self._status()
        if self._write_seed is not None and self._write_seed[1].key_id == key_id:
            return
        seed = os.urandom(32)
        encrypted = await self._plugin.encrypt(seed)
        self._write_seed = (seed, encrypted)
        self._cache_seed(encrypted.ciphertext, seed)

    async def _status(self) -> str:
        """Return the plugin's key ID, and record whether it answers; concurrent callers share one Status call."""
        if self._status_call is None:
            self._status_call = asyncio.create_task(self._call_status(), name=f"kms {self._plugin.name}: Status")
        return await asyncio.shield(self._status_call)

    async def _call_status(self) -> str:
        try:
            key_id = await self._plugin.status()
        except EncryptionError as error:
            self._unavailable = _failure(error) if isinstance(error, PluginUnavailable) else None
            raise
        finally:
            self._status_call = None
        self._unavailable = None
        return key_id

    async def poll_status(self, clock: Clock) -> None:
        """Call Status periodically until cancelled."""
        while True:
            await clock.sleep(RETRY_SECONDS if self.problem else CHECK_SECONDS)
            try:
                await self.start()
            except EncryptionError as error:
                log.error("%s", error)

    def encrypt(self, value: bytes, key: bytes) -> bytes:
        if self._write_seed is None:
            raise EncryptionError(f"kms {self._plugin.name}: there is no key to write with")
        seed, encrypted = self._write_seed
        info, nonce = os.urandom(INFO), os.urandom(NONCE)
        data = info + nonce + AESGCM(_derived(seed, info)).encrypt(nonce, value, key)
        made = EncryptedObject(
            encryptedData=data,
            keyID=encrypted.key_id,
            encryptedDEKSource=encrypted.ciphertext,
            annotations=dict(encrypted.annotations),
            encryptedDEKSourceType=HKDF_SHA256_XNONCE_AES_GCM_SEED,
        )
        return bytes(made.SerializeToString())

    def decrypt(self, value: bytes, key: bytes) -> bytes:
        found = _read(value)
        seed = self._seeds.get(found.encryptedDEKSource)
        if seed is None:
            raise EncryptionError(f"kms {self._plugin.name}: the key of {key.decode()} is not known")
        data = found.encryptedData
        if found.encryptedDEKSourceType != HKDF_SHA256_XNONCE_AES_GCM_SEED:
            return AESGCM(seed).decrypt(data[:NONCE], data[NONCE:], key)
        info, nonce, text = data[:INFO], data[INFO : INFO + NONCE], data[INFO + NONCE :]
        return AESGCM(_derived(seed, info)).decrypt(nonce, text, key)

    async def fetch_key(self, value: bytes, deadline: float | None = None) -> None:
        """Decrypt the seed of a value with the plugin unless it is cached; raises EncryptionError.

        With a deadline (of the event loop's clock) a call that takes longer continues in the background, and what has failed
        is left to callers without one to retry.
        """
        found = _read(value)
        source = found.encryptedDEKSource
        if source in self._seeds:
            return
        now = asyncio.get_running_loop().time()
        call = self._calls.get(source)
        if call is None:
            for failure in (self._failed.get(source), self._unavailable):
                if failure is not None and (deadline is not None or now < failure.retry_at):
                    raise EncryptionError(failure.message)
            work = self._fetch(EncryptedSeed(source, found.keyID, dict(found.annotations)))
            call = self._calls[source] = _Call(asyncio.create_task(work, name=f"kms {self._plugin.name}: Decrypt"), now)
        if deadline is not None:
            remaining = min(deadline, call.started + WATCH_KEY_SECONDS) - now
            await asyncio.wait((call.task,), timeout=max(remaining, 0.0))
            if not call.task.done():
                raise EncryptionError(f"kms {self._plugin.name}: Decrypt: no response yet")
        if (error := await asyncio.shield(call.task)) is not None:
            raise EncryptionError(str(error)) from error

    async def _fetch(self, encrypted: EncryptedSeed) -> EncryptionError | None:
        """Call the plugin and cache the seed or the failure."""
        source = encrypted.ciphertext
        try:
            seed = await self._plugin.decrypt(encrypted)
        except EncryptionError as error:
            await self._record_failure(source, error)
            return error
        finally:
            del self._calls[source]
        self._failed.pop(source, None)
        self._unavailable = None
        self._unanswered.clear()
        self._cache_seed(source, seed)
        return None

    async def _record_failure(self, source: bytes, error: EncryptionError) -> None:
        """Record that a Decrypt call failed, of the seed or, if the plugin does not answer at all, of the plugin."""
        if not isinstance(error, PluginUnavailable):
            self._unavailable = None
            self._unanswered.clear()
        elif not self._closed:
            with contextlib.suppress(EncryptionError):
                await self._status()
            if self._unavailable is not None:
                return
            if len(self._unanswered) < UNANSWERED_SEEDS:
                self._unanswered.add(source)
            if len(self._unanswered) == UNANSWERED_SEEDS:
                self._unavailable = _failure(error)
        self._failed[source] = _failure(error, self._failed.pop(source, None))
        if len(self._failed) > CACHED_SEEDS:
            self._failed.popitem(last=False)

    def stale(self, value: bytes) -> bool:
        """Return whether a value was encrypted with another key ID than the current one, also if it cannot be parsed."""
        if self._write_seed is None:
            return False
        try:
            return _read(value).keyID != self._write_seed[1].key_id
        except EncryptionError:
            return True  # `decrypt` reports it

    def _cache_seed(self, ciphertext: bytes, seed: bytes) -> None:
        self._seeds[ciphertext] = seed
        if len(self._seeds) > CACHED_SEEDS:
            self._seeds.popitem(last=False)

    async def close(self) -> None:
        self._closed = True
        await self._plugin.close()
        under_way: list[asyncio.Task[Any]] = [call.task for call in self._calls.values()]
        if self._status_call is not None:
            under_way.append(self._status_call)
        await asyncio.gather(*under_way, return_exceptions=True)


def _derived(seed: bytes, info: bytes) -> bytes:
    return HKDFExpand(algorithm=SHA256(), length=32, info=info).derive(seed)


def _read(value: bytes) -> EncryptedObject:
    try:
        return EncryptedObject.FromString(value)
    except DecodeError as error:
        raise EncryptionError("what is stored is no object of KMS v2") from error
