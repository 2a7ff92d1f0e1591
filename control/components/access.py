"""Delegated authentication and authorization of the ports of the controllers and of the scheduler.

Clients are known by a certificate of the cluster's authority or by a TokenReview, others are anonymous. A path that is not open
to everybody needs a SubjectAccessReview. As upstream's apiserver/pkg/server/options: answers are cached for ten seconds,
members of system:masters are not reviewed, and a path of the open ones with a star at its end stands for all that begin so.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

import msgspec

from kube.api import authorization_v1
from kube.client import Client
from kube.client_waits import WaitingRequest
from kube.clock import Clock
from kube.delegated_authentication import Authenticator, User
from kube.delegated_reviews import places, reviewed
from kube.errors import StatusError, internal, unauthorized
from kube.expiring_cache import ExpiringCache
from kube.reviews import Reviews

OPEN_PATHS = ("/healthz", "/readyz", "/livez")
CACHE_SECONDS = 10.0
_MASTERS = "system:masters"


class ComponentAccess:
    """Access to one port; `authentication` and `authorization` send the reviews."""

    def __init__(
        self, authentication: Client, authorization: Client, clock: Clock, open_paths: Sequence[str] = OPEN_PATHS
    ) -> None:
        line = places()
        self._authenticator = Authenticator(
            authentication, clock, cache_seconds=CACHE_SECONDS, anonymous=True, line=line
        )
        self._client = authorization
        self._exact = frozenset(path for path in open_paths if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in open_paths if path.endswith("*"))
        self._reviews: Reviews[bool] = Reviews(line)
        self._answers: ExpiringCache[tuple[object, ...], bool] = ExpiringCache(clock)

    async def check(self, address: str, certificate: bytes | None, authorization: str, verb: str, path: str) -> None:
        """Return if a request is allowed. Raises StatusError: 401, 403, 429, or 500 without an answer of the API server."""
        client = WaitingRequest(address, _never)
        try:
            user = await self._authenticator.authenticate(certificate, authorization, client)
            if user is None:
                raise unauthorized()
            if self._is_open(path) or _MASTERS in user.groups or await self._allowed(client, user, verb, path):
                return
        except StatusError as error:
            if error.code in (401, 429):
                raise
            raise internal(str(error)) from error
        name = msgspec.json.encode(user.name).decode()
        shown = msgspec.json.encode(path).decode()
        raise StatusError(403, "Forbidden", f"forbidden: User {name} cannot {verb} path {shown}")

    def _is_open(self, path: str) -> bool:
        return path in self._exact or path.startswith(self._prefixes)

    async def _allowed(self, client: WaitingRequest, user: User, verb: str, path: str) -> bool:
        extra = tuple((name, tuple(values)) for name, values in sorted(user.extra.items()))
        key = (user.name, user.groups, user.uid, extra, verb, path)
        answer, found = self._answers.get(key)
        if found:
            return bool(answer)

        async def send() -> bool:
            spec = authorization_v1.SubjectAccessReviewSpec(
                user=user.name,
                groups=list(user.groups),
                uid=user.uid or None,
                extra={name: list(values) for name, values in user.extra.items()},
                non_resource_attributes=authorization_v1.NonResourceAttributes(path=path, verb=verb),
            )
            review = await self._client.create(authorization_v1.SubjectAccessReview(spec=spec))
            allowed = bool(review.status.allowed)
            self._answers.put(key, allowed, CACHE_SECONDS)
            return allowed

        digest = hashlib.sha256(msgspec.json.encode(key)).digest()
        return await reviewed(self._reviews, client, digest, lambda: self._answers.get(key)[0], lambda wanted: send())


async def _never() -> None:
    """Wait for ever: connections to this port are closed by its own time limits."""
    await asyncio.Event().wait()
