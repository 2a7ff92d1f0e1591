"""Delegated authentication: by a client certificate of the cluster's CA, or by a TokenReview.

The kubelet's API and the ports of the controllers and the scheduler authenticate so.

The certificate was verified in the TLS handshake; its common name is the user and its organisations are the groups. Whether it
is still valid is checked for each request: a connection may outlive it. The result of a TokenReview is cached for two minutes,
by the token's digest. Tokens that are not known have a cache of their own: invented ones evict none that is in use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography import x509

from kube import client_certificates
from kube.api import authentication_v1
from kube.bearer_tokens import LONGEST
from kube.client import Client
from kube.client_certificates import ClientCertificate
from kube.client_waits import Waiting
from kube.clock import Clock
from kube.delegated_reviews import places, reviewed
from kube.expiring_cache import ExpiringCache
from kube.fair_places import FairPlaces
from kube.reviews import Reviews

AUTHENTICATED = "system:authenticated"


@dataclass(frozen=True, slots=True)
class User:
    """A name, its groups, and what the authenticator adds."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


class Authenticator:
    """Authenticates a request; None means unauthenticated, which is answered with 401.

    `client` is None if webhook authentication is off. Times are in seconds; `line` is shared with the authorizer.
    """

    def __init__(
        self,
        client: Client | None,
        clock: Clock,
        *,
        cache_seconds: float,
        anonymous: bool,
        line: FairPlaces | None = None,
    ) -> None:
        self._client, self._clock = client, clock
        self._anonymous = anonymous
        self._reviews: Reviews[tuple[User | None]] = Reviews(line or places())
        self._tokens: ExpiringCache[bytes, User] = ExpiringCache(clock)
        self._unknown_tokens: ExpiringCache[bytes, None] = ExpiringCache(clock)
        self._certificates: ExpiringCache[bytes, ClientCertificate | None] = ExpiringCache(clock, limit=128)
        self._cache_seconds = cache_seconds

    async def authenticate(
        self, certificate: bytes | None, authorization: str, connection: Waiting | None = None
    ) -> User | None:
        """Identify the caller from its certificate (DER) or its Authorization header. Raise StatusError."""
        known = self._read(certificate) if certificate is not None else None
        if known is not None and (user := _user_of(known)) is not None:
            return user
        scheme, _, token = authorization.strip().partition(" ")
        token = token.strip()
        if scheme.lower() == "bearer" and token:
            return await self._review(token, connection) if self._client is not None else None
        # As in upstream, who has a certificate that is not valid is not anonymous.
        refused = certificate is not None and known is None
        return ANONYMOUS if self._anonymous and not authorization and not refused else None

    def _read(self, der: bytes) -> ClientCertificate | None:
        """Return what a certificate says; None if it is not valid now, or not for clients."""
        certificate, found = self._certificates.get(der)
        if not found:
            certificate = of_certificate(der)
            self._certificates.put(der, certificate, 60.0)
        return certificate if certificate is not None and certificate.valid(self._clock.now()) else None

    async def _review(self, token: str, connection: Waiting | None) -> User | None:
        if len(token) > LONGEST:
            return None
        key = hashlib.sha256(token.encode()).digest()
        found = self._known(key)
        if found is None:
            found = await reviewed(
                self._reviews, connection, key, lambda: self._known(key), lambda wanted: self._send(key, token)
            )
        return found[0]

    def _known(self, key: bytes) -> tuple[User | None] | None:
        """Return the cached user of a token; None if it is not cached."""
        user, found = self._tokens.get(key)
        return (user,) if found or self._unknown_tokens.get(key)[1] else None

    async def _send(self, key: bytes, token: str) -> tuple[User | None]:
        assert self._client is not None
        spec = authentication_v1.TokenReviewSpec(token=token)
        status = (await self._client.create(authentication_v1.TokenReview(spec=spec))).status
        if status.authenticated and status.user is not None and status.user.username:
            known = status.user
            groups = tuple(known.groups)
            if AUTHENTICATED not in groups:
                groups = (*groups, AUTHENTICATED)
            extra = {key: tuple(values) for key, values in known.extra.items()}
            user = User(known.username or "", groups, known.uid or "", extra)
            self._tokens.put(key, user, self._cache_seconds)
            return (user,)
        self._unknown_tokens.put(key, None, self._cache_seconds)
        return (None,)


def of_certificate(der: bytes) -> ClientCertificate | None:
    """Read a client certificate that TLS has verified; None if it is not for client authentication."""
    try:
        return client_certificates.read(x509.load_der_x509_certificate(der))
    except client_certificates.NotForClients:
        return None


def _user_of(certificate: ClientCertificate) -> User | None:
    subject = certificate.subject
    return User(subject.name, (*subject.groups, AUTHENTICATED), subject.uid) if subject.name else None
