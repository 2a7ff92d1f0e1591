"""Service-account tokens: signed, bound to an audience, a life time, an account and (mostly) a pod.

A token is good only while what it is bound to exists with the uid it had: account, pod, Secret, node. Its signature and
claims never change, so they are cached by the token's digest; expiry and the bound objects are checked on every request, from
memory. The cache has only short tokens that were accepted for an audience of this server, without their other audiences:
clients choose how many of those there are. All others are verified at every request, in 0.2 ms.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from control.auth import secret_tokens
from control.auth.token_claims import TokenContent, read
from control.auth.token_signer import TokenSigner
from control.auth.user import Credentials, UserInfo
from kube.bounded_cache import on_forget
from kube.clock import Clock
from kube.errors import StatusError, unauthorized

MOST_CACHED = 8192
"""Tokens, of about 2 KiB each."""
LONGEST_CACHED = 4096
"""Characters of a token in the cache. One with the longest names of account, namespace, pod and node has about 2 500."""
LEEWAY = 60
"""Seconds that a token works before and after its time, since the clocks of servers differ, and after the deletion time of its
pod, for hooks that run while the pod ends (jwt.DefaultLeeway in pkg/serviceaccount/claims.go)."""

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
        self._ours = frozenset(self.audiences)
        self._cache: dict[bytes, TokenContent] = {}
        on_forget(self._cache.clear)

    async def authenticate(self, credentials: Credentials) -> UserInfo | None:
        if credentials.token is None:
            return None
        found = self.review(credentials.token, self.audiences)
        return found[0] if found else None

    def review(self, token: str, audiences: Sequence[str]) -> tuple[UserInfo, list[str]] | None:
        """Return the user and those audiences that the token is for; None if the token is not this issuer's.

        Raises 401 if the token is expired, for another audience, forged, or bound to what is gone.
        """
        digest = hashlib.sha256(token.encode()).digest() if len(token) <= LONGEST_CACHED else b""
        content = self._cache.get(digest)
        if content is not None and (audiences is self.audiences or self._ours.issuperset(audiences)):
            return self._accepted(content, token, audiences)
        claims = self._signer.verify(token)
        if claims is None:
            return None
        content = read(claims)
        accepted = self._accepted(content, token, audiences)
        if digest:
            self._put(digest, content)
        return accepted

    def _accepted(self, content: TokenContent, token: str, audiences: Sequence[str]) -> tuple[UserInfo, list[str]]:
        if content.secret is not None:
            self._check_secret(content.secret, token)
            return content.user, self._implied(audiences)
        shared = [a for a in audiences if a in content.audiences]
        now = self._clock.now().timestamp()
        if not shared or not content.not_before - LEEWAY <= now <= content.expires + LEEWAY:
            raise unauthorized()
        for bound in content.bound:
            self._must_exist(*bound)
        return content.user, shared

    def _put(self, digest: bytes, content: TokenContent) -> None:
        """Cache the content of an accepted token, if it is for this server."""
        ours = self._ours & content.audiences
        if not ours and content.secret is None:
            return
        if len(self._cache) >= MOST_CACHED:
            del self._cache[next(iter(self._cache))]
        self._cache[digest] = content._replace(audiences=ours)

    def _implied(self, audiences: Sequence[str]) -> list[str]:
        """Return those audiences that a token without any is for: the API server's."""
        shared = [a for a in audiences if a in self.audiences]
        if not shared:
            raise unauthorized()
        return shared

    def _check_secret(self, names: tuple[str, str, str, str], token: str) -> None:
        """Raise 401 if the Secret of a token does not hold it any more."""
        namespace, name, uid, secret = names
        kept = self._lookup("secrets", namespace, secret)
        if kept is None or not secret_tokens.holds(kept, token, self._clock.now()):
            raise unauthorized()
        self._must_exist("serviceaccounts", namespace, name, uid)
        self._used(kept)
        if kept["metadata"].get("labels", {}).get(secret_tokens.INVALID_SINCE):
            raise unauthorized()

    def _must_exist(self, resource: str, namespace: str, name: str, uid: str) -> None:
        found = self._lookup(resource, namespace, name)
        if found is None or found["metadata"].get("uid") != uid:
            raise unauthorized()
        deleted = found["metadata"].get("deletionTimestamp")
        if deleted:
            since = self._clock.now() - datetime.fromisoformat(deleted)
            if since.total_seconds() > LEEWAY:
                raise unauthorized()


def is_refusal(error: StatusError) -> bool:
    """Tell a bad credential from a failure to look."""
    return error.code == 401
