"""Bearer tokens in the form of a JWT before their signature is checked: bounded in length, and decoded once.

Any client can send one, and each authenticator of such tokens reads its issuer. The claims must not be used until the
issuer's key has verified the signature.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from kube.bearer_tokens import LONGEST
from kube.lazy_module import LazyModule
from kube.nesting import too_deep

if TYPE_CHECKING:
    import jwt
else:
    jwt = LazyModule("jwt")


class Unverified(NamedTuple):
    """Issuer and key of a token before its signature is verified."""

    header: dict[str, Any]
    claims: dict[str, Any]

    @property
    def issuer(self) -> str:
        """Return the token's issuer, "" if it has none."""
        issuer = self.claims.get("iss")
        return issuer if isinstance(issuer, str) else ""

    @property
    def key_id(self) -> str:
        """Return the ID of the key that signed the token, "" if it has none."""
        return str(self.header.get("kid") or "")


def unverified(token: str) -> Unverified | None:
    """Return issuer and key ID of a token, None if it is not a JWT or too long."""
    return _decoded(token) if len(token) <= LONGEST and token.count(".") == 2 else None


@functools.lru_cache(maxsize=1)
def _decoded(token: str) -> Unverified | None:
    """Decode a token, once for all authenticators: they run one after the other."""
    try:
        found = jwt.decode_complete(token, options={"verify_signature": False})
    except (jwt.PyJWTError, RecursionError):
        return None
    if too_deep(found["header"]) or too_deep(found["payload"]):
        return None  # which its verification would not read, either
    return Unverified(found["header"], found["payload"])
