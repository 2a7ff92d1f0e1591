"""An OpenID Connect issuer for tests: a real HTTPS server on loopback with a discovery document and keys that can rotate."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support import https


class IssuerServer:
    """A running issuer."""

    def __init__(self, authority: bytes) -> None:
        self.authority = authority.decode()
        self.port, self.fetched = 0, 0
        self.key_id, self.key = "", rsa.generate_private_key(65537, 2048)
        self.rotate("k1")

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def rotate(self, key_id: str) -> None:
        """Sign with another key from now on, and publish no other."""
        self.key_id, self.key = key_id, rsa.generate_private_key(65537, 2048)

    def token(self, key: Any = None, algorithm: str = "RS256", **claims: Any) -> str:
        """Sign an ID token; None takes a claim away."""
        now = int(time.time())
        full = {"iss": self.url, "aud": "wherry", "exp": now + 600, "iat": now, "sub": "jane"} | claims
        kept = {name: value for name, value in full.items() if value is not None}
        return jwt.encode(kept, key or self.key, algorithm, headers={"kid": self.key_id})

    async def document(self, request: web.Request) -> web.Response:
        return web.json_response({"issuer": self.url, "jwks_uri": f"{self.url}/keys"})

    async def keys(self, request: web.Request) -> web.Response:
        self.fetched += 1
        key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return web.json_response({"keys": [key | {"kid": self.key_id, "use": "sig", "alg": "RS256"}]})


@contextlib.asynccontextmanager
async def issuer(directory: Path) -> AsyncIterator[IssuerServer]:
    """Run an issuer with a certificate of an authority of its own."""
    server = IssuerServer(https.authority(directory, "issuer"))
    application = web.Application()
    application.router.add_get("/.well-known/openid-configuration", server.document)
    application.router.add_get("/keys", server.keys)
    async with https.served(application, directory, "issuer") as server.port:
        yield server
