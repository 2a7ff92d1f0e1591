"""A key management plugin (KMS v2): gRPC on a unix socket. The plugin has the key that encrypts the seeds here."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from control.storage.encryption import EncryptionError
from control.storage.kms import messages
from kube import cancellation
from kube.names import dns1123_subdomain

SERVICE = "/v2.KeyManagementService/"
VERSIONS = ("v2", "v2beta1")
LONGEST_KEY_ID, LONGEST_SEED, MOST_ANNOTATIONS = 1024, 1024, 32 * 1024
"""Bytes, of all annotations together; every value that is encrypted contains them (envelope.go: ValidateEncryptedObject)."""
_UNAVAILABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class PluginUnavailable(EncryptionError):
    """The plugin is not there, or did not answer in time."""


@dataclass(frozen=True, slots=True)
class EncryptedSeed:
    """A seed encrypted by the plugin, with the fields of its Decrypt call."""

    ciphertext: bytes
    key_id: str
    annotations: Mapping[str, bytes]


class Plugin:
    """Client of one plugin; `timeout` is in seconds a call. To be created inside a running event loop."""

    def __init__(self, name: str, endpoint: str, timeout: float) -> None:
        self.name, self._timeout = name, timeout
        self._channel = grpc.aio.insecure_channel(endpoint)

    async def status(self) -> str:
        """Return the plugin's current key ID; raises EncryptionError if the plugin is not healthy."""
        found = await self._call("Status", messages.StatusRequest(), messages.StatusResponse)
        if found.version not in VERSIONS:
            raise EncryptionError(f"kms {self.name}: the plugin speaks {found.version!r}, not v2")
        if found.healthz != "ok":
            raise EncryptionError(f"kms {self.name}: the plugin says {found.healthz!r}")
        return _checked(self.name, found.key_id)

    async def encrypt(self, secret: bytes) -> EncryptedSeed:
        request = messages.EncryptRequest(plaintext=secret, uid=str(uuid.uuid4()))
        found = await self._call("Encrypt", request, messages.EncryptResponse)
        annotations = dict(found.annotations)
        if problem := _problem(found.ciphertext, annotations):
            raise EncryptionError(f"kms {self.name}: the plugin's answer is not valid: {problem}")
        return EncryptedSeed(found.ciphertext, _checked(self.name, found.key_id), annotations)

    async def decrypt(self, encrypted: EncryptedSeed) -> bytes:
        request = messages.DecryptRequest(
            ciphertext=encrypted.ciphertext,
            uid=str(uuid.uuid4()),
            key_id=encrypted.key_id,
            annotations=dict(encrypted.annotations),
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
            return await cancellation.as_error(call(request, timeout=self._timeout, wait_for_ready=True))
        except cancellation.AwaitedCancelled as error:
            raise PluginUnavailable(f"kms {self.name}: {method}: the connection is closed") from error
        except grpc.aio.AioRpcError as error:
            kind = PluginUnavailable if error.code() in _UNAVAILABLE else EncryptionError
            raise kind(f"kms {self.name}: {method}: {error.details() or error.code().name}") from error

    async def close(self) -> None:
        await self._channel.close(None)


def _problem(ciphertext: bytes, annotations: Mapping[str, bytes]) -> str:
    """Return what is wrong with an encrypted seed, "" for nothing."""
    if not ciphertext:
        return "encrypted DEK source is empty"
    if len(ciphertext) > LONGEST_SEED:
        return f"encrypted DEK source is {len(ciphertext)} bytes, which exceeds the max size of {LONGEST_SEED}"
    size = sum(len(name.encode()) + len(value) for name, value in annotations.items())
    if size > MOST_ANNOTATIONS:
        return f"total size of annotations is {size}, which exceeds the max size of {MOST_ANNOTATIONS}"
    for name in annotations:
        if dns1123_subdomain(name.removesuffix(".")) or "." not in name.removesuffix("."):
            return f"annotation {name!r} is no domain with at least two segments separated by dots"
    return ""


def _checked(name: str, key_id: str) -> str:
    if not key_id or len(key_id.encode()) > LONGEST_KEY_ID:
        raise EncryptionError(f"kms {name}: a key ID must have 1 to {LONGEST_KEY_ID} bytes")
    return key_id
