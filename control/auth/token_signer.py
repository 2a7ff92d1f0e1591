"""The cluster as an issuer of tokens: it signs them, knows its own again, and publishes the keys to do so elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric import rsa

from control.auth import secret_tokens
from control.auth.encoding import base64url
from control.auth.token_claims import Claims
from control.auth.unverified_token import unverified
from kube import pki
from kube.errors import unauthorized
from kube.lazy_module import LazyModule

if TYPE_CHECKING:
    import jwt
else:
    jwt = LazyModule("jwt")

ISSUER = "https://kubernetes.default.svc.cluster.local"


class TokenSigner:
    """Signs and verifies tokens; `keys` are further public keys still accepted, as after a key rotation."""

    def __init__(self, key: pki.PrivateKey, issuer: str = ISSUER, keys: Sequence[pki.PublicKey] = ()) -> None:
        self.issuer = issuer
        self._key, self._kid = key, pki.key_id(key.public_key())
        self._public = {pki.key_id(k): k for k in (key.public_key(), *keys)}
        self._algorithm = algorithm(key.public_key())

    def sign(self, claims: Claims) -> str:
        # PyJWT writes typ: JWT unless told not to; upstream's tokens carry alg and kid alone.
        return jwt.encode(claims, self._key, self._algorithm, headers={"kid": self._kid, "typ": ""})

    def verify(self, token: str) -> Claims | None:
        """Return the claims of a token this issuer signed, None if it is not ours; raise 401 if it is forged."""
        parsed = unverified(token)
        if parsed is None or parsed.issuer not in (self.issuer, secret_tokens.ISSUER):
            return None
        for key_id, key in self._public.items():
            if parsed.key_id and parsed.key_id != key_id:
                continue
            try:
                return dict(jwt.decode(token, key, algorithms=[algorithm(key)], options=_SIGNATURE_ONLY))
            except jwt.PyJWTError:
                continue
        raise unauthorized()

    def jwks(self) -> dict[str, Any]:
        """Return what /openid/v1/jwks serves."""
        return {"keys": [_jwk(kid, key) for kid, key in self._public.items()]}

    def discovery(self, jwks_uri: str = "") -> dict[str, Any]:
        """Return what /.well-known/openid-configuration serves."""
        return {
            "issuer": self.issuer,
            "jwks_uri": jwks_uri or f"{self.issuer}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": sorted({algorithm(k) for k in self._public.values()}),
        }


_SIGNATURE_ONLY: Any = {
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_sub": False,
    "verify_jti": False,
}


def algorithm(key: pki.PublicKey) -> str:
    """Return the JOSE algorithm of a key: RS256, or ES256/384/512 by curve."""
    if isinstance(key, rsa.RSAPublicKey):
        return "RS256"
    return {256: "ES256", 384: "ES384", 521: "ES512"}[key.curve.key_size]


def _jwk(kid: str, key: pki.PublicKey) -> dict[str, Any]:
    common = {"use": "sig", "kid": kid, "alg": algorithm(key)}
    if isinstance(key, rsa.RSAPublicKey):
        numbers = key.public_numbers()
        return common | {"kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e)}
    size, point = (key.curve.key_size + 7) // 8, key.public_numbers()
    curve = f"P-{key.curve.key_size}"
    return common | {"kty": "EC", "crv": curve, "x": _number(point.x, size), "y": _number(point.y, size)}


def _number(value: int, size: int = 0) -> str:
    return base64url(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))
