"""A key management plugin for tests: a real gRPC server on a unix socket that keeps AES keys by their ID."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from control.storage.kms import messages


class Kms:
    """`key_id` names the key that it writes with; `keys` are all that it can open."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.keys: dict[str, bytes] = {}
        self.key_id = ""
        self.healthz = "ok"
        self.away = False
        """True if it answers nothing but UNAVAILABLE."""
        self.hangs = False
        """True if calls do not end."""
        self.hanging = asyncio.Event()
        """Set when a call hangs."""
        self.calls: list[str] = []
        self.rotate("one")

    def rotate(self, key_id: str) -> None:
        self.keys[key_id] = os.urandom(32)
        self.key_id = key_id

    async def _check_there(self, context: Any) -> None:
        if self.away:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "away")
        if self.hangs:
            self.hanging.set()
            await asyncio.Event().wait()

    async def status(self, request: Any, context: Any) -> Any:
        await self._check_there(context)
        return messages.StatusResponse(version="v2", healthz=self.healthz, key_id=self.key_id)

    async def encrypt(self, request: Any, context: Any) -> Any:
        await self._check_there(context)
        self.calls.append("encrypt")
        nonce = os.urandom(12)
        text = nonce + AESGCM(self.keys[self.key_id]).encrypt(nonce, request.plaintext, None)
        annotations = {"kms.example.com": b"x"}
        return messages.EncryptResponse(ciphertext=text, key_id=self.key_id, annotations=annotations)

    async def decrypt(self, request: Any, context: Any) -> Any:
        await self._check_there(context)
        self.calls.append("decrypt")
        if request.key_id not in self.keys or dict(request.annotations) != {"kms.example.com": b"x"}:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no key {request.key_id}")
        text = request.ciphertext
        return messages.DecryptResponse(plaintext=AESGCM(self.keys[request.key_id]).decrypt(text[:12], text[12:], None))


@contextlib.asynccontextmanager
async def kms(directory: Path) -> AsyncIterator[Kms]:
    """Run one on a socket in a folder."""
    made = Kms(f"unix://{directory / 'kms.sock'}")
    calls: dict[str, tuple[Any, Any, Any]] = {
        "Status": (made.status, messages.StatusRequest, messages.StatusResponse),
        "Encrypt": (made.encrypt, messages.EncryptRequest, messages.EncryptResponse),
        "Decrypt": (made.decrypt, messages.DecryptRequest, messages.DecryptResponse),
    }
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            work, request_deserializer=requested.FromString, response_serializer=answer.SerializeToString
        )
        for name, (work, requested, answer) in calls.items()
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v2.KeyManagementService", handlers),))
    server.add_insecure_port(made.endpoint)
    await server.start()
    try:
        yield made
    finally:
        await server.stop(None)
