"""Service-account tokens: signed, bound to an audience, a life time, an account and (mostly) a pod.

A token is good only while what it is bound to exists with the uid it had: account, pod, Secret, node. Its signature and
claims never change, so the outcome of verifying them is kept by the token's digest; expiry and the bound objects are looked
at on every request, from memory. Claims, names of extra fields and the one-year extension of kubelet-requested tokens follow
pkg/serviceaccount/claims.go.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from control.auth import secret_tokens
from control.auth.encoding import base64url
from control.auth.user import Credentials, UserInfo
from control.auth.x509 import CREDENTIAL_ID
from kube import pki
from kube.clock import Clock
from kube.errors import StatusError, unauthorized

PREFIX = "system:serviceaccount:"
GROUP = "system:serviceaccounts"
ISSUER = "https://kubernetes.default.svc.cluster.local"
_EXTRA = "authentication.kubernetes.io/"
_KEPT = 16384
_DELETION_LEEWAY = 60
"""Seconds after its deletion time that a pod's token still works, for hooks that run while the pod ends."""

Claims = dict[str, Any]
Lookup = Callable[[str, str, str], dict[str, Any] | None]
"""(resource plural, namespace, name) -> object, out of the watch cache."""


def username(namespace: str, name: str) -> str:
    return f"{PREFIX}{namespace}:{name}"


def groups_of(namespace: str) -> tuple[str, ...]:
    return (GROUP, f"{GROUP}:{namespace}")


def split_username(user: str) -> tuple[str, str] | None:
    """Return (namespace, name) of a service account's user name, None where it is not one."""
    if not user.startswith(PREFIX):
        return None
    parts = user.removeprefix(PREFIX).split(":")
    return (parts[0], parts[1]) if len(parts) == 2 and all(parts) else None


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
        """Return the claims of a token this issuer signed, None where it is not ours; raise 401 where it is forged."""
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            return None
        if claims.get("iss") not in (self.issuer, secret_tokens.ISSUER):
            return None
        kid = header.get("kid")
        for key_id, key in self._public.items():
            if kid and kid != key_id:
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


@dataclass(frozen=True, slots=True)
class Bound:
    """What a token is bound to besides its account."""

    kind: str
    name: str
    uid: str


def make_claims(
    issuer: str,
    account: dict[str, Any],
    audiences: Sequence[str],
    issued: datetime,
    seconds: int,
    *,
    pod: Bound | None = None,
    secret: Bound | None = None,
    node: Bound | None = None,
    warn_after: int = 0,
) -> Claims:
    """Build a bound token's claims; times in seconds, `warn_after` 0 is none. A pod's token may name its node too."""
    metadata, now = account["metadata"], int(issued.timestamp())
    private: Claims = {
        "namespace": metadata["namespace"],
        "serviceaccount": {"name": metadata["name"], "uid": metadata["uid"]},
    }
    for key, bound in (("pod", pod), ("secret", secret), ("node", node)):
        if bound is not None:
            private[key] = {"name": bound.name, "uid": bound.uid}
    if warn_after:
        private["warnafter"] = now + warn_after
    return {
        "aud": list(audiences),
        "exp": now + seconds,
        "iat": now,
        "iss": issuer,
        "jti": str(uuid.uuid4()),
        "kubernetes.io": private,
        "nbf": now,
        "sub": username(metadata["namespace"], metadata["name"]),
    }


class ServiceAccountAuthenticator:
    """Accepts tokens of this cluster's issuer for any of the API server's audiences."""

    def __init__(self, signer: TokenSigner, lookup: Lookup, clock: Clock, audiences: Sequence[str] = ()) -> None:
        self._signer, self._lookup, self._clock = signer, lookup, clock
        self.audiences = tuple(audiences) or (signer.issuer,)
        self._known: dict[bytes, Claims] = {}

    async def authenticate(self, credentials: Credentials) -> UserInfo | None:
        if credentials.token is None:
            return None
        found = self.review(credentials.token, self.audiences)
        return found[0] if found else None

    def review(self, token: str, audiences: Sequence[str]) -> tuple[UserInfo, list[str]] | None:
        """Return the user and those audiences that the token is for; None where the token is not this issuer's.

        Raises 401 where the token is expired, for another audience, forged, or bound to what is gone.
        """
        claims = self._claims(token)
        if claims is None:
            return None
        if claims["iss"] == secret_tokens.ISSUER:
            return self._from_secret(claims, token), self._implied(audiences)
        meant = claims.get("aud", [])
        meant = [meant] if isinstance(meant, str) else meant
        shared = [a for a in audiences if a in meant]
        now = self._clock.now().timestamp()
        if not shared or now > claims.get("exp", 0) or now < claims.get("nbf", 0):
            raise unauthorized()
        return self._user(claims), shared

    def _implied(self, audiences: Sequence[str]) -> list[str]:
        """Return those audiences that a token without any is for: the API server's."""
        shared = [a for a in audiences if a in self.audiences]
        if not shared:
            raise unauthorized()
        return shared

    def _from_secret(self, claims: Claims, token: str) -> UserInfo:
        namespace, name, uid, secret = secret_tokens.read_claims(claims)
        if claims.get("sub") != username(namespace, name):
            raise unauthorized()
        if not secret_tokens.holds(self._lookup("secrets", namespace, secret), token, self._clock.now()):
            raise unauthorized()
        self._must_exist("serviceaccounts", namespace, {"name": name, "uid": uid})
        return UserInfo(username(namespace, name), uid, groups_of(namespace))

    def _claims(self, token: str) -> Claims | None:
        digest = hashlib.sha256(token.encode()).digest()
        claims = self._known.get(digest)
        if claims is None:
            claims = self._signer.verify(token)
            if claims is not None:
                if len(self._known) >= _KEPT:
                    self._known.clear()
                self._known[digest] = claims
        return claims

    def _user(self, claims: Claims) -> UserInfo:
        private = claims.get("kubernetes.io") or {}
        namespace, account = private.get("namespace", ""), private.get("serviceaccount") or {}
        name, uid = account.get("name", ""), account.get("uid", "")
        if claims.get("sub") != username(namespace, name):
            raise unauthorized()
        self._must_exist("serviceaccounts", namespace, account)
        extra: dict[str, tuple[str, ...]] = {}
        if "jti" in claims:
            extra[CREDENTIAL_ID] = (f"JTI={claims['jti']}",)
        if secret := private.get("secret"):
            self._must_exist("secrets", namespace, secret)
        if pod := private.get("pod"):
            self._must_exist("pods", namespace, pod)
            extra[_EXTRA + "pod-name"], extra[_EXTRA + "pod-uid"] = (pod["name"],), (pod["uid"],)
        if node := private.get("node"):
            if not pod:  # a pod's token tells the node, but is bound to the pod alone
                self._must_exist("nodes", "", node)
            extra[_EXTRA + "node-name"] = (node["name"],)
            if node.get("uid"):
                extra[_EXTRA + "node-uid"] = (node["uid"],)
        return UserInfo(username(namespace, name), uid, groups_of(namespace), extra)

    def _must_exist(self, resource: str, namespace: str, ref: Claims) -> None:
        found = self._lookup(resource, namespace, ref.get("name", ""))
        if found is None or found["metadata"].get("uid") != ref.get("uid"):
            raise unauthorized()
        deleted = found["metadata"].get("deletionTimestamp")
        if deleted:
            since = self._clock.now() - datetime.fromisoformat(deleted)
            if since.total_seconds() > _DELETION_LEEWAY:
                raise unauthorized()


def is_refusal(error: StatusError) -> bool:
    """Tell a bad credential from a failure to look."""
    return error.code == 401
