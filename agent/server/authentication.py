"""Authenticates clients of the kubelet's API: by a client certificate of the cluster's CA, or by a TokenReview.

The certificate was verified in the TLS handshake; its common name is the user and its organisations are the groups. The answer
of a TokenReview is cached, by the token's digest, for two minutes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from agent.server.expiring_cache import ExpiringCache
from kube import subjects
from kube.api import authentication_v1
from kube.client import Client
from kube.clock import Clock

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
    """Authenticates a request; None means nobody, which is answered with 401.

    `client` is None where webhook authentication is off. Times are in seconds.
    """

    def __init__(self, client: Client | None, clock: Clock, *, cache_seconds: float, anonymous: bool) -> None:
        self._client = client
        self._anonymous = anonymous
        self._tokens: ExpiringCache[str, User | None] = ExpiringCache(clock)
        self._certificates: ExpiringCache[bytes, User | None] = ExpiringCache(clock, limit=128)
        self._cache_seconds = cache_seconds

    async def authenticate(self, certificate: bytes | None, authorization: str) -> User | None:
        """Identify the caller from its certificate (DER) or its Authorization header. Raise StatusError."""
        if certificate is not None:
            user, found = self._certificates.get(certificate)
            if not found:
                user = of_certificate(certificate)
                self._certificates.put(certificate, user, 60.0)
            if user is not None:
                return user
        scheme, _, token = authorization.strip().partition(" ")
        token = token.strip()
        if scheme.lower() == "bearer" and token:
            return await self._review(token) if self._client is not None else None
        return ANONYMOUS if self._anonymous and not authorization else None

    async def _review(self, token: str) -> User | None:
        assert self._client is not None
        digest = hashlib.sha256(token.encode()).hexdigest()
        user, found = self._tokens.get(digest)
        if found:
            return user
        spec = authentication_v1.TokenReviewSpec(token=token)
        status = (await self._client.create(authentication_v1.TokenReview(spec=spec))).status
        user = None
        if status.authenticated and status.user is not None and status.user.username:
            known = status.user
            groups = tuple(known.groups)
            if AUTHENTICATED not in groups:
                groups = (*groups, AUTHENTICATED)
            extra = {key: tuple(values) for key, values in known.extra.items()}
            user = User(known.username or "", groups, known.uid or "", extra)
        self._tokens.put(digest, user, self._cache_seconds)
        return user


def of_certificate(der: bytes) -> User | None:
    """Read a verified client certificate; None where it is not one for clients or names nobody."""
    certificate = x509.load_der_x509_certificate(der)
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        if ExtendedKeyUsageOID.CLIENT_AUTH not in usages and ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE not in usages:
            return None
    except x509.ExtensionNotFound:
        return None
    try:
        subject = subjects.read(certificate.subject)
    except subjects.SubjectError:
        return None
    return User(subject.name, (*subject.groups, AUTHENTICATED), subject.uid) if subject.name else None
