"""Encryption with a key that a plugin keeps: every value has a key of its own, derived from a seed that the plugin has
encrypted.

The seed is made once for each key of the plugin, so that writing asks nobody. Stored with a value are the encrypted
seed, the plugin's key ID and 32 random bytes from which and the seed the value's key is derived (HKDF-SHA256, expand
only; AES-256-GCM), as upstream has it since v1.29. Reading asks the plugin for a seed that is not known yet
(`learn`); a thousand are cached.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from google.protobuf.message import DecodeError

from control.storage.encryption import EncryptionError
from control.storage.kms.messages import HKDF_SHA256_XNONCE_AES_GCM_SEED, EncryptedObject
from control.storage.kms.plugin import Plugin, Sealed
from kube.clock import Clock

log = logging.getLogger(__name__)
CHECK_SECONDS = 60.0
"""How often the plugin is asked how it is and which key it writes with."""
RETRY_SECONDS = 3.0
"""How soon a plugin that failed is asked again, as upstream."""
INFO, NONCE = 32, 12
REMEMBERED = 1000


class KmsProvider:
    """A provider as `encryption.Provider`; `start` must have been called."""

    def __init__(self, plugin: Plugin) -> None:
        self.prefix = f"k8s:enc:kms:v2:{plugin.name}:".encode()
        self._plugin = plugin
        self._seeds: OrderedDict[bytes, bytes] = OrderedDict()
        self._failed: OrderedDict[bytes, tuple[float, EncryptionError]] = OrderedDict()
        """Seeds that the plugin could not decrypt, and until when it is not asked again: many values share a seed."""
        self._writing: tuple[bytes, Sealed] | None = None
        self.problem: str | None = None
        """What is wrong with the plugin; None where nothing is."""

    async def start(self) -> None:
        """Get a seed to write with; raises EncryptionError."""
        try:
            await self._check()
            self.problem = None
        except EncryptionError as error:
            self.problem = str(error)
            raise

    async def _check(self) -> None:
        key_id = await self._plugin.status()
        if self._writing is not None and self._writing[1].key_id == key_id:
            return
        seed = os.urandom(32)
        sealed = await self._plugin.encrypt(seed)
        self._writing = (seed, sealed)
        self._remember(sealed.ciphertext, seed)

    async def follow(self, clock: Clock) -> None:
        """Ask the plugin again and again, until cancelled."""
        while True:
            await clock.sleep(RETRY_SECONDS if self.problem else CHECK_SECONDS)
            try:
                await self.start()
            except EncryptionError as error:
                log.error("%s", error)

    def encrypt(self, value: bytes, key: bytes) -> bytes:
        if self._writing is None:
            raise EncryptionError(f"kms {self._plugin.name}: there is no key to write with")
        seed, sealed = self._writing
        info, nonce = os.urandom(INFO), os.urandom(NONCE)
        data = info + nonce + AESGCM(_derived(seed, info)).encrypt(nonce, value, key)
        made = EncryptedObject(
            encryptedData=data,
            keyID=sealed.key_id,
            encryptedDEKSource=sealed.ciphertext,
            annotations=dict(sealed.annotations),
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

    async def learn(self, value: bytes) -> None:
        """Ask the plugin for what `decrypt` needs, where that is not known; raises EncryptionError."""
        found = _read(value)
        source = found.encryptedDEKSource
        if source in self._seeds:
            return
        now = asyncio.get_running_loop().time()
        until, failure = self._failed.get(source, (0.0, None))
        if failure is not None and now < until:
            raise failure
        try:
            seed = await self._plugin.decrypt(Sealed(source, found.keyID, dict(found.annotations)))
        except EncryptionError as error:
            self._failed[source] = (now + RETRY_SECONDS, error)
            if len(self._failed) > REMEMBERED:
                self._failed.popitem(last=False)
            raise
        self._failed.pop(source, None)
        self._remember(source, seed)

    def stale(self, value: bytes) -> bool:
        """Say whether a value was written with another of the plugin's keys than it writes with now."""
        return self._writing is not None and _read(value).keyID != self._writing[1].key_id

    def _remember(self, ciphertext: bytes, seed: bytes) -> None:
        self._seeds[ciphertext] = seed
        if len(self._seeds) > REMEMBERED:
            self._seeds.popitem(last=False)

    async def close(self) -> None:
        await self._plugin.close()


def _derived(seed: bytes, info: bytes) -> bytes:
    return HKDFExpand(algorithm=SHA256(), length=32, info=info).derive(seed)


def _read(value: bytes) -> EncryptedObject:
    try:
        return EncryptedObject.FromString(value)
    except DecodeError as error:
        raise EncryptionError("what is stored is no object of KMS v2") from error
