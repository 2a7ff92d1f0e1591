"""All ways of saying who one is, in upstream's order, and who one is without saying it.

A proxy's word, client certificate, then bearer token: static file, service account, bootstrap, OpenID Connect,
webhook. The first that knows the credential decides. A token that nobody knows is an error (401), never the anonymous
user: a client with an expired token should hear of it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from control.auth.metrics import ATTEMPT_SECONDS, ATTEMPTS, USERS
from control.auth.user import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, Authenticator, Credentials, UserInfo
from kube.bootstrap_tokens import CLUSTER_INFO, CLUSTER_INFO_NAMESPACE
from kube.errors import StatusError, unauthorized

ANONYMOUS_USER = UserInfo(ANONYMOUS, "", (UNAUTHENTICATED,))
HEALTH_PATHS = ("/healthz", "/livez", "/readyz")
DISCOVERY_PATH = f"/api/v1/namespaces/{CLUSTER_INFO_NAMESPACE}/configmaps/{CLUSTER_INFO}"
"""What a machine that wants to join reads before it has a credential; to be read, and nothing else."""


class UnionAuthenticator:
    """Asks each authenticator in turn and adds the group of everybody who is authenticated."""

    def __init__(self, authenticators: Sequence[Authenticator]) -> None:
        self.replace(authenticators)

    def replace(self, authenticators: Sequence[Authenticator]) -> None:
        """Take others; requests under way are answered by those that they began with."""
        self.authenticators = tuple(authenticators)

    async def authenticate(self, credentials: Credentials) -> UserInfo | None:
        """Return the user, None where the request carried no credential, or raise 401."""
        start, result = time.perf_counter(), "error"
        try:
            user = await self._authenticate(credentials)
            result = "success" if user is not None else "failure"
        except StatusError as error:
            if error.code == 401 and error.__cause__ is None:
                result = "failure"
            raise
        finally:
            ATTEMPTS.add(result)
            ATTEMPT_SECONDS.observe(result, time.perf_counter() - start)
        if user is not None:
            USERS.add(_counted(user))
        return user

    async def _authenticate(self, credentials: Credentials) -> UserInfo | None:
        refusal: StatusError | None = None
        for authenticator in self.authenticators:
            try:
                user = await authenticator.authenticate(credentials)
            except StatusError as error:
                refusal = error
                continue
            if user is not None:
                return with_authenticated(user)
        if refusal is not None:
            raise refusal
        if credentials.token is not None or credentials.certificate is not None:
            raise unauthorized()
        return None


_COUNTED = frozenset({"admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"})


def _counted(user: UserInfo) -> str:
    """Return what a user is counted under; names of people are nobody's business (upstream's compressUsername)."""
    return user.name if user.name in _COUNTED else "email_id" if "@" in user.name else "other"


def with_authenticated(user: UserInfo) -> UserInfo:
    """Add system:authenticated to a user's groups, unless they are anonymous or have it."""
    if user.name == ANONYMOUS or AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return msgspec.structs.replace(user, groups=(*user.groups, AUTHENTICATED))


@dataclass(frozen=True, slots=True)
class AnonymousPolicy:
    """Paths that anonymous users may request; `paths` None: all of them."""

    enabled: bool = True
    paths: Collection[str] | None = HEALTH_PATHS

    def user(self, path: str, method: str = "GET") -> UserInfo | None:
        """Return the anonymous user where a path is open to them, None where a credential is needed (401)."""
        if self.enabled and (self.paths is None or path in self.paths or (method, path) == ("GET", DISCOVERY_PATH)):
            return ANONYMOUS_USER
        return None
