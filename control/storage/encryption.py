"""Encryption at rest: which keys are encrypted how, and the ciphers. `encrypted_store` puts it before an engine.

The configuration is upstream's EncryptionConfiguration, and so are the bytes: `k8s:enc:<provider>:v1:<key>:` and then the
cipher text, with the storage key as additional data where the cipher takes some (a value copied to another key does not
decrypt). The first provider of a resource writes, all of them read; `identity` is plain text.

Providers: aesgcm, aescbc and identity. secretbox and kms are refused when the configuration is read.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from control.storage.store import StoreError

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


_CIPHERS: dict[str, type[Gcm] | type[Cbc]] = {"aesgcm": Gcm, "aescbc": Cbc}


class Encryption:
    """Which keys of the store are encrypted how: the first prefix that fits decides."""

    def __init__(self, rules: Sequence[tuple[str, Sequence[Provider]]]) -> None:
        self.rules = rules

    @classmethod
    def load(cls, path: Path, prefixes: Mapping[str, str]) -> Encryption:
        """Read an EncryptionConfiguration; `prefixes` leads from a resource ("secrets") to its prefix in the store."""
        return cls.parse(path.read_bytes(), prefixes)

    @classmethod
    def parse(cls, text: bytes, prefixes: Mapping[str, str]) -> Encryption:
        try:
            found = msgspec.yaml.decode(text)
        except msgspec.DecodeError as error:
            raise EncryptionError(f"the encryption configuration is not YAML: {error}") from error
        if not isinstance(found, dict) or found.get("kind") != "EncryptionConfiguration":
            raise EncryptionError("the encryption configuration is not of kind EncryptionConfiguration")
        rules: list[tuple[str, Sequence[Provider]]] = []
        for entry in found.get("resources") or ():
            providers = [p for given in entry.get("providers") or () for p in _providers(given)]
            if not providers:
                raise EncryptionError("resources without providers")
            for name in entry.get("resources") or ():
                rules += [(prefix, providers) for prefix in _prefixes(name, prefixes)]
        if not rules:
            raise EncryptionError("the encryption configuration names no resources")
        return cls(rules)

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
        first = providers[0].prefix
        return not stored.startswith(first) if first else stored.startswith(_PREFIX)


def _prefixes(name: str, prefixes: Mapping[str, str]) -> list[str]:
    if name == "*.*":
        return ["/registry/"]
    if name == "*.":
        return sorted({p for target, p in prefixes.items() if "." not in target})
    if name.startswith("*."):
        return sorted({p for target, p in prefixes.items() if target.partition(".")[2] == name[2:]})
    if name not in prefixes:
        raise EncryptionError(f"unknown resource {name}")
    return [prefixes[name]]


def _providers(given: Mapping[str, Any]) -> list[Provider]:
    (name, settings), *more = given.items()
    if more:
        raise EncryptionError("each provider is an entry of its own")
    if name == "identity":
        return [Identity()]
    if name not in _CIPHERS:
        raise EncryptionError(f"provider {name} is not supported; use aesgcm, aescbc or identity")
    found: list[Provider] = []
    for key in (settings or {}).get("keys") or ():
        try:
            secret = base64.b64decode(key.get("secret", ""), validate=True)
        except binascii.Error as error:
            raise EncryptionError(f"the secret of key {key.get('name')} is not base64") from error
        if len(secret) not in (16, 24, 32):
            raise EncryptionError(f"the secret of key {key.get('name')} has {len(secret)} bytes, not 16, 24 or 32")
        found.append(_CIPHERS[name](f"k8s:enc:{name}:v1:{key.get('name')}:".encode(), secret))
    if not found:
        raise EncryptionError(f"provider {name} has no keys")
    return found
