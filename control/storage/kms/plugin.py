"""A key management plugin (KMS v2): gRPC on a unix socket. Only it has the key that the keys here are encrypted with."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from control.storage.encryption import EncryptionError
from control.storage.kms import messages

SERVICE = "/v2.KeyManagementService/"
VERSIONS = ("v2", "v2beta1")
LONGEST_KEY_ID = 1024


@dataclass(frozen=True, slots=True)
class Sealed:
    """A secret as the plugin gave it back, and what it needs to open it."""

    ciphertext: bytes
    key_id: str
    annotations: Mapping[str, bytes]


class Plugin:
    """One plugin; `timeout` is seconds a call. Make it inside a running loop."""

    def __init__(self, name: str, endpoint: str, timeout: float) -> None:
        self.name, self._timeout = name, timeout
        self._channel = grpc.aio.insecure_channel(endpoint)

    async def status(self) -> str:
        """Return the ID of the key that the plugin writes with; raises EncryptionError where it is not well."""
        found = await self._call("Status", messages.StatusRequest(), messages.StatusResponse)
        if found.version not in VERSIONS:
            raise EncryptionError(f"kms {self.name}: the plugin speaks {found.version!r}, not v2")
        if found.healthz != "ok":
            raise EncryptionError(f"kms {self.name}: the plugin says {found.healthz!r}")
        return _checked(self.name, found.key_id)

    async def encrypt(self, secret: bytes) -> Sealed:
        request = messages.EncryptRequest(plaintext=secret, uid=str(uuid.uuid4()))
        found = await self._call("Encrypt", request, messages.EncryptResponse)
        if not found.ciphertext:
            raise EncryptionError(f"kms {self.name}: the plugin returned nothing")
        return Sealed(found.ciphertext, _checked(self.name, found.key_id), dict(found.annotations))

    async def decrypt(self, sealed: Sealed) -> bytes:
        request = messages.DecryptRequest(
            ciphertext=sealed.ciphertext,
            uid=str(uuid.uuid4()),
            key_id=sealed.key_id,
            annotations=dict(sealed.annotations),
        )
        found = await self._call("Decrypt", request, messages.DecryptResponse)
        return bytes(found.plaintext)

    async def _call(self, method: str, request: Any, answer: Any) -> Any:
        call = self._channel.unary_unary(
            SERVICE + method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        try:
            return await call(request, timeout=self._timeout, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            raise EncryptionError(f"kms {self.name}: {method}: {error.details() or error.code().name}") from error

    async def close(self) -> None:
        await self._channel.close(None)


def _checked(name: str, key_id: str) -> str:
    if not key_id or len(key_id) > LONGEST_KEY_ID:
        raise EncryptionError(f"kms {name}: a key ID must have 1 to {LONGEST_KEY_ID} characters")
    return key_id
