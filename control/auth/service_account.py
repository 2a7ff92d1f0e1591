"""Service-account tokens: signed, bound to an audience, a life time, an account and (mostly) a pod.

A token is good only while what it is bound to exists with the uid it had: account, pod, Secret, node. Its signature and
claims never change, so what it says is kept by the token's digest; expiry and the bound objects are looked at on every
request, from memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from control.auth import secret_tokens
from control.auth.service_accounts import groups_of, username
from control.auth.token_claims import Claims, Seen, read
from control.auth.token_signer import TokenSigner
from control.auth.user import Credentials, UserInfo
from kube.clock import Clock
from kube.errors import StatusError, unauthorized

_KEPT = 16384
_DELETION_LEEWAY = 60
"""Seconds after its deletion time that a pod's token still works, for hooks that run while the pod ends."""

Lookup = Callable[[str, str, str], dict[str, Any] | None]
"""(resource plural, namespace, name) -> object, out of the watch cache."""


class ServiceAccountAuthenticator:
    """Accepts tokens of this cluster's issuer for any of the API server's audiences.

    `used` is called with each Secret whose token was used, also with one that is refused because nobody had used it for long.
    """

    def __init__(
        self,
        signer: TokenSigner,
        lookup: Lookup,
        clock: Clock,
        audiences: Sequence[str] = (),
        used: Callable[[dict[str, Any]], None] = lambda secret: None,
    ) -> None:
        self._signer, self._lookup, self._clock, self._used = signer, lookup, clock, used
        self.audiences = tuple(audiences) or (signer.issuer,)
        self._known: dict[bytes, Seen] = {}

    async def authenticate(self, credentials: Credentials) -> UserInfo | None:
        if credentials.token is None:
            return None
        found = self.review(credentials.token, self.audiences)
        return found[0] if found else None

    def review(self, token: str, audiences: Sequence[str]) -> tuple[UserInfo, list[str]] | None:
        """Return the user and those audiences that the token is for; None where the token is not this issuer's.

        Raises 401 where the token is expired, for another audience, forged, or bound to what is gone.
        """
        seen = self._seen(token)
        if seen is None:
            return None
        claims = seen.claims
        if claims["iss"] == secret_tokens.ISSUER:
            return self._from_secret(claims, token), self._implied(audiences)
        meant = claims.get("aud", [])
        meant = [meant] if isinstance(meant, str) else meant
        shared = [a for a in audiences if a in meant]
        now = self._clock.now().timestamp()
        if not shared or now > claims.get("exp", 0) or now < claims.get("nbf", 0):
            raise unauthorized()
        for resource, namespace, ref in seen.bound:
            self._must_exist(resource, namespace, ref)
        return seen.user, shared

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
        kept = self._lookup("secrets", namespace, secret)
        if kept is None or not secret_tokens.holds(kept, token, self._clock.now()):
            raise unauthorized()
        self._must_exist("serviceaccounts", namespace, {"name": name, "uid": uid})
        self._used(kept)
        if kept["metadata"].get("labels", {}).get(secret_tokens.INVALID_SINCE):
            raise unauthorized()
        return UserInfo(username(namespace, name), uid, groups_of(namespace))

    def _seen(self, token: str) -> Seen | None:
        """Return what a token says; its signature is checked once."""
        digest = hashlib.sha256(token.encode()).digest()
        seen = self._known.get(digest)
        if seen is None:
            claims = self._signer.verify(token)
            if claims is not None:
                if len(self._known) >= _KEPT:
                    self._known.clear()
                seen = self._known[digest] = read(claims)
        return seen

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
