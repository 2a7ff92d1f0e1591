"""Encryption at rest: the ciphers, and which keys of the store are encrypted how. `encrypted_store` puts it before an
engine.

The bytes are upstream's: `k8s:enc:<provider>:v1:<key>:` and then the cipher text, with the storage key as additional
data where the cipher takes some (a value copied to another key does not decrypt). The first provider of a resource
writes, all of them read; `identity` is plain text. `kms/` has those that ask a plugin for their keys; what a file
says is read by `encryption_configuration`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from control.storage.store import StoreError
from kube.clock import Clock

_PREFIX = b"k8s:enc:"


class EncryptionError(StoreError):
    """The configuration cannot be used, or a value cannot be decrypted with the keys that are there."""


class Provider(Protocol):
    """One key of one cipher."""

    @property
    def prefix(self) -> bytes: ...
    def encrypt(self, value: bytes, key: bytes) -> bytes: ...
    def decrypt(self, value: bytes, key: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Plain text."""

    prefix: bytes = b""

    def encrypt(self, value: bytes, key: bytes) -> bytes:
        return value

    def decrypt(self, value: bytes, key: bytes) -> bytes:
        return value


@dataclass(frozen=True, slots=True)
class Gcm:
    """AES-GCM with a random nonce of 12 bytes before the text."""

    prefix: bytes
    secret: bytes

    def encrypt(self, value: bytes, key: bytes) -> bytes:
        nonce = os.urandom(12)
        return nonce + AESGCM(self.secret).encrypt(nonce, value, key)

    def decrypt(self, value: bytes, key: bytes) -> bytes:
        return AESGCM(self.secret).decrypt(value[:12], value[12:], key)


@dataclass(frozen=True, slots=True)
class Cbc:
    """AES-CBC with PKCS#7 padding and a random vector of 16 bytes before the text; it proves nothing of integrity."""

    prefix: bytes
    secret: bytes

    def encrypt(self, value: bytes, key: bytes) -> bytes:
        vector = os.urandom(16)
        padder = padding.PKCS7(128).padder()
        encryptor = Cipher(algorithms.AES(self.secret), modes.CBC(vector)).encryptor()
        return vector + encryptor.update(padder.update(value) + padder.finalize()) + encryptor.finalize()

    def decrypt(self, value: bytes, key: bytes) -> bytes:
        decryptor = Cipher(algorithms.AES(self.secret), modes.CBC(value[:16])).decryptor()
        unpadder = padding.PKCS7(128).unpadder()
        padded = decryptor.update(value[16:]) + decryptor.finalize()
        return unpadder.update(padded) + unpadder.finalize()


@dataclass(frozen=True, slots=True)
class Secretbox:
    """XSalsa20 and Poly1305 with a random nonce of 24 bytes before the text; the storage key is no part of it, as upstream."""

    prefix: bytes
    secret: bytes

    def encrypt(self, value: bytes, key: bytes) -> bytes:
        from nacl.secret import SecretBox  # 20 ms of start-up that only those who chose it need

        return bytes(SecretBox(self.secret).encrypt(value))

    def decrypt(self, value: bytes, key: bytes) -> bytes:
        from nacl.exceptions import CryptoError
        from nacl.secret import SecretBox

        try:
            return SecretBox(self.secret).decrypt(value)
        except CryptoError as error:
            raise ValueError("it does not fit") from error


@runtime_checkable
class Learning(Provider, Protocol):
    """A provider whose keys somebody else has: it has to be started, and asks for the key of a value before it decrypts it."""

    problem: str | None

    async def start(self) -> None: ...
    async def learn(self, value: bytes) -> None: ...
    async def follow(self, clock: Clock) -> None: ...
    async def close(self) -> None: ...
    def stale(self, value: bytes) -> bool: ...


class Encryption:
    """Providers by the prefix of keys in the store: the first prefix that matches applies."""

    def __init__(self, rules: Sequence[tuple[str, Sequence[Provider]]]) -> None:
        self.rules = rules
        found = {id(p): p for _, providers in rules for p in providers if isinstance(p, Learning)}
        self.learning: tuple[Learning, ...] = tuple(found.values())

    async def start(self) -> None:
        """Make all providers ready that ask others for their keys; raises the first one's EncryptionError."""
        failures: list[EncryptionError] = []
        for provider in self.learning:
            try:
                await provider.start()
            except EncryptionError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    async def close(self) -> None:
        for provider in self.learning:
            await provider.close()

    def check(self) -> str | None:
        """Say what is wrong with the plugins; None where nothing is."""
        return next((p.problem for p in self.learning if p.problem), None)

    async def learn(self, key: str, stored: bytes) -> None:
        """Get what `open` needs for a value; raises EncryptionError."""
        if not stored.startswith(_PREFIX):
            return
        for provider in self.providers(key):
            if isinstance(provider, Learning) and stored.startswith(provider.prefix):
                await provider.learn(stored[len(provider.prefix) :])

    def providers(self, key: str) -> Sequence[Provider]:
        for prefix, providers in self.rules:
            if key.startswith(prefix):
                return providers
        return ()

    def seal(self, key: str, value: bytes) -> bytes:
        """Return what to store for a value."""
        providers = self.providers(key)
        if not providers:
            return value
        return providers[0].prefix + providers[0].encrypt(value, key.encode())

    def open(self, key: str, stored: bytes) -> bytes:
        """Return the value of what is stored; EncryptionError where no key fits."""
        if not stored.startswith(_PREFIX):
            providers = self.providers(key)
            if stored and providers and not any(isinstance(p, Identity) for p in providers):
                # As upstream: what is not encrypted is only believed where the configuration says so.
                raise EncryptionError(f"{key} is stored as plain text, and no identity provider is configured for it")
            return stored
        for provider in self.providers(key):
            if provider.prefix and stored.startswith(provider.prefix):
                try:
                    return provider.decrypt(stored[len(provider.prefix) :], key.encode())
                except (InvalidTag, ValueError) as error:
                    raise EncryptionError(f"{key} cannot be decrypted: wrong key or damaged") from error
        raise EncryptionError(f"{key} is encrypted with a key that is not configured")

    def stale(self, key: str, stored: bytes) -> bool:
        """Say whether a value is stored in another way than it would be now."""
        providers = self.providers(key)
        if not providers:
            return stored.startswith(_PREFIX)
        writer = providers[0]
        if not writer.prefix:
            return stored.startswith(_PREFIX)
        if not stored.startswith(writer.prefix):
            return True
        return isinstance(writer, Learning) and writer.stale(stored[len(writer.prefix) :])
