"""Encryption at rest: the ciphers, and the providers of each key of the store. `encrypted_store` applies it to an engine.

The format is upstream's: `k8s:enc:<provider>:v1:<key>:` and then the ciphertext, with the storage key as additional
authenticated data if the cipher supports it (a value copied to another key does not decrypt). The first provider of a
resource encrypts, all of them decrypt; `identity` is plain text. `kms/` has the providers whose keys a plugin encrypts;
`encryption_configuration` parses the configuration file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from control.storage.store import StoreError
from kube.clock import Clock

PREFIX = b"k8s:enc:"
"""Beginning of every encrypted value."""
WATCH_KEY_SECONDS = 1.0
"""Maximum duration for which a watch waits for a key that another process has to supply."""


class EncryptionError(StoreError):
    """The configuration cannot be used, or a value cannot be decrypted with the configured keys."""


class Provider(Protocol):
    """One key of one cipher."""

    @property
    def prefix(self) -> bytes: ...
    def encrypt(self, value: bytes, key: bytes) -> bytes: ...
    def decrypt(self, value: bytes, key: bytes) -> bytes: ...


class Identity(msgspec.Struct, frozen=True):
    """Plain text."""

    prefix: bytes = b""

    def encrypt(self, value: bytes, key: bytes) -> bytes:
        return value

    def decrypt(self, value: bytes, key: bytes) -> bytes:
        return value


class Gcm(msgspec.Struct, frozen=True):
    """AES-GCM with a random nonce of 12 bytes before the text."""

    prefix: bytes
    secret: bytes

    def encrypt(self, value: bytes, key: bytes) -> bytes:
        nonce = os.urandom(12)
        return nonce + AESGCM(self.secret).encrypt(nonce, value, key)

    def decrypt(self, value: bytes, key: bytes) -> bytes:
        return AESGCM(self.secret).decrypt(value[:12], value[12:], key)


class Cbc(msgspec.Struct, frozen=True):
    """AES-CBC with PKCS#7 padding and a random IV of 16 bytes before the text; it does not protect integrity."""

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


class Secretbox(msgspec.Struct, frozen=True):
    """XSalsa20 and Poly1305 with a random nonce of 24 bytes before the text, as in upstream without the storage key."""

    prefix: bytes
    secret: bytes

    def encrypt(self, value: bytes, key: bytes) -> bytes:
        from nacl.secret import SecretBox  # 20 ms of start-up that only this provider needs

        return bytes(SecretBox(self.secret).encrypt(value))

    def decrypt(self, value: bytes, key: bytes) -> bytes:
        from nacl.exceptions import CryptoError
        from nacl.secret import SecretBox

        try:
            return SecretBox(self.secret).decrypt(value)
        except CryptoError as error:
            raise ValueError("it does not fit") from error


LocalKey = Gcm | Cbc | Secretbox


def described(key: LocalKey) -> str:
    """Return a key's provider and name for messages."""
    _, _, provider, _, name, _ = key.prefix.decode().split(":")
    return f"{provider} key {name}"


@runtime_checkable
class RemoteKeyProvider(Provider, Protocol):
    """A provider whose keys are in another process: it is started, and fetches the key of a value before decryption."""

    problem: str | None

    async def start(self) -> None: ...
    async def fetch_key(self, value: bytes, deadline: float | None = None) -> None: ...
    async def poll_status(self, clock: Clock) -> None: ...
    async def close(self) -> None: ...
    def stale(self, value: bytes) -> bool: ...


class Encryption:
    """Providers by the prefix of keys in the store: the first prefix that matches applies."""

    def __init__(self, rules: Sequence[tuple[str, Sequence[Provider]]]) -> None:
        self.rules = rules
        found = {id(p): p for _, providers in rules for p in providers if isinstance(p, RemoteKeyProvider)}
        self.remote: tuple[RemoteKeyProvider, ...] = tuple(found.values())
        self.shared_names = bool(self.replaced_keys(self))
        """True if two keys for the same values have one name."""

    def replaced_keys(self, former: Encryption) -> list[LocalKey]:
        """Return the keys that have the name of another of the same values, here or in a former configuration."""
        found: dict[bytes, LocalKey] = {}
        for folder in dict.fromkeys(prefix for prefix, _ in (*self.rules, *former.rules)):
            before = [each for each in former.providers(folder) if isinstance(each, LocalKey)]
            for key in self.providers(folder):
                if isinstance(key, LocalKey) and any(b.prefix == key.prefix and b != key for b in before):
                    found[key.prefix] = key
        return list(found.values())

    async def start(self) -> None:
        """Start all providers with remote keys; raises the first one's EncryptionError."""
        failures: list[EncryptionError] = []
        for provider in self.remote:
            try:
                await provider.start()
            except EncryptionError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    async def close(self) -> None:
        for provider in self.remote:
            await provider.close()

    def check(self) -> str | None:
        """Return the error of a plugin; None if all work."""
        return next((p.problem for p in self.remote if p.problem), None)

    async def fetch_key(self, key: str, stored: bytes, deadline: float | None = None) -> None:
        """Fetch the key for `decrypt`, until a deadline of the event loop's clock if there is one; raises EncryptionError."""
        if not stored.startswith(PREFIX):
            return
        for provider in self.providers(key):
            if isinstance(provider, RemoteKeyProvider) and stored.startswith(provider.prefix):
                await provider.fetch_key(stored[len(provider.prefix) :], deadline)

    def providers(self, key: str) -> Sequence[Provider]:
        for prefix, providers in self.rules:
            if key.startswith(prefix):
                return providers
        return ()

    def encrypt(self, key: str, value: bytes) -> bytes:
        """Return what to store for a value."""
        providers = self.providers(key)
        if not providers:
            return value
        return providers[0].prefix + providers[0].encrypt(value, key.encode())

    def decrypt(self, key: str, stored: bytes) -> bytes:
        """Return the decrypted value; raises EncryptionError if no key fits."""
        if not stored.startswith(PREFIX):
            providers = self.providers(key)
            if stored and providers and not any(isinstance(p, Identity) for p in providers):
                # As in upstream: plain text is accepted only if the configuration has the identity provider.
                raise EncryptionError(f"{key} is stored as plain text, and no identity provider is configured for it")
            return stored
        failed: Exception | None = None
        for provider in self.providers(key):
            if provider.prefix and stored.startswith(provider.prefix):
                try:
                    return provider.decrypt(stored[len(provider.prefix) :], key.encode())
                except (InvalidTag, ValueError) as error:
                    failed = failed or error  # as in upstream, another provider may have a key of this name
        if failed is not None:
            raise EncryptionError(f"{key} cannot be decrypted: wrong key or damaged") from failed
        raise EncryptionError(f"{key} is encrypted with a key that is not configured")

    async def written_with_first(self, key: str, stored: bytes) -> bool:
        """Return whether the first provider decrypts a value that is not stale by its prefix: names do not identify keys."""
        if not stored.startswith(PREFIX):
            return True
        first = self.providers(key)[0]
        value = stored[len(first.prefix) :]
        try:
            if isinstance(first, RemoteKeyProvider):
                await first.fetch_key(value)
            first.decrypt(value, key.encode())
        except (InvalidTag, ValueError, EncryptionError):
            return False
        return True

    def stale(self, key: str, stored: bytes) -> bool:
        """Return whether a value would be encrypted with another provider, or a key of another name, now."""
        providers = self.providers(key)
        if not providers:
            return stored.startswith(PREFIX)
        writer = providers[0]
        if not writer.prefix:
            return stored.startswith(PREFIX)
        if not stored.startswith(writer.prefix):
            return True
        return isinstance(writer, RemoteKeyProvider) and writer.stale(stored[len(writer.prefix) :])
