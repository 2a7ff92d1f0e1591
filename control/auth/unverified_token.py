"""Bearer tokens in the form of a JWT before their signature is checked: bounded in length, and decoded once.

Anybody can send one, and each authenticator of such tokens reads who issued it. What it says counts for nothing until the
issuer's key has verified it.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jwt

LONGEST = 32 << 10
"""Characters of a token that is read: providers that put hundreds of groups into one stay below it."""


class Unverified(NamedTuple):
    """Issuer and key of a token before its signature is verified."""

    header: dict[str, Any]
    claims: dict[str, Any]

    @property
    def issuer(self) -> str:
        """Return who issued the token, "" where it names nobody."""
        issuer = self.claims.get("iss")
        return issuer if isinstance(issuer, str) else ""

    @property
    def key_id(self) -> str:
        """Return which of the issuer's keys signed the token, "" where it does not say."""
        return str(self.header.get("kid") or "")


def unverified(token: str) -> Unverified | None:
    """Return what a token says, None for one that is no JWT or too long."""
    return _decoded(token) if len(token) <= LONGEST and token.count(".") == 2 else None


@functools.lru_cache(maxsize=1)
def _decoded(token: str) -> Unverified | None:
    """Decode a token, once for all authenticators: they are asked one after the other."""
    try:
        found = jwt.decode_complete(token, options={"verify_signature": False})
    except (jwt.PyJWTError, RecursionError):
        return None
    return Unverified(found["header"], found["payload"])
