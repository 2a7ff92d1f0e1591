"""Union of the authenticators in upstream's order, and the anonymous user.

The order is: authenticating proxy, client certificate, then bearer token by static file, service account, bootstrap token,
OpenID Connect, webhook. The first authenticator that recognizes the credentials decides. An unknown token is an error
(401) and does not make the request anonymous, so a client with an expired token gets an error.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

import msgspec

from control.auth.metrics import ATTEMPT_SECONDS, ATTEMPTS, USERS
from control.auth.user import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, Authenticator, Credentials, UserInfo
from kube.bootstrap_tokens import CLUSTER_INFO, CLUSTER_INFO_NAMESPACE
from kube.errors import StatusError, unauthorized

ANONYMOUS_USER = UserInfo(ANONYMOUS, "", (UNAUTHENTICATED,))
HEALTH_PATHS = ("/healthz", "/livez", "/readyz")
DISCOVERY_PATH = f"/api/v1/namespaces/{CLUSTER_INFO_NAMESPACE}/configmaps/{CLUSTER_INFO}"
"""Paths that a joining machine reads without credentials, only with GET."""


class UnionAuthenticator:
    """Calls the authenticators in order and adds system:authenticated to the user's groups."""

    def __init__(self, authenticators: Sequence[Authenticator]) -> None:
        self.replace(authenticators)

    def replace(self, authenticators: Sequence[Authenticator]) -> None:
        """Replace the authenticators; running requests use the previous ones."""
        self.authenticators = tuple(authenticators)

    async def authenticate(self, credentials: Credentials) -> UserInfo | None:
        """Return the user, None for a request without credentials, or raise 401."""
        start, result = time.perf_counter(), "error"
        refusal: StatusError | None = None
        try:
            for authenticator in self.authenticators:
                try:
                    user = await authenticator.authenticate(credentials)
                except StatusError as error:
                    refusal = error
                    continue
                if user is not None:
                    result, user = "success", with_authenticated(user)
                    USERS.add(_counted(user))
                    return user
            if refusal is not None:
                raise refusal
            if credentials.token is not None or credentials.certificate is not None:
                raise unauthorized()
            result = "failure"
            return None
        except StatusError as error:
            if error.code == 401 and error.__cause__ is None:
                result = "failure"
            raise
        finally:
            refusal = None  # its traceback refers to this frame
            ATTEMPTS.add(result)
            ATTEMPT_SECONDS.observe(result, time.perf_counter() - start)


_COUNTED = frozenset({"admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"})


def _counted(user: UserInfo) -> str:
    """Return the label of a user in metrics, which contains no names of people (upstream: compressUsername)."""
    return user.name if user.name in _COUNTED else "email_id" if "@" in user.name else "other"


def with_authenticated(user: UserInfo) -> UserInfo:
    """Add system:authenticated to a user's groups, unless they are anonymous or have it."""
    if user.name == ANONYMOUS or AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return msgspec.structs.replace(user, groups=(*user.groups, AUTHENTICATED))


class AnonymousPolicy(msgspec.Struct, frozen=True):
    """Paths that anonymous users may request; `paths` None: all of them."""

    enabled: bool = True
    paths: Collection[str] | None = HEALTH_PATHS

    def user(self, path: str, method: str = "GET") -> UserInfo | None:
        """Return the anonymous user if it may request the path, None if credentials are needed (401)."""
        if self.enabled and (self.paths is None or path in self.paths or (method, path) == ("GET", DISCOVERY_PATH)):
            return ANONYMOUS_USER
        return None
