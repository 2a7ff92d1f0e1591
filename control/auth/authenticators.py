"""All ways of saying who one is, in upstream's order, and who one is without saying it.

Client certificate, then bearer token: static file, service account, bootstrap, OpenID Connect. The first that knows the
credential decides. A token that nobody knows is an error (401), never the anonymous user: a client with an expired token
should hear of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

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
        self._authenticators = authenticators

    async def authenticate(self, credentials: Credentials) -> UserInfo | None:
        """Return the user, None where the request carried no credential, or raise 401."""
        refusal: StatusError | None = None
        for authenticator in self._authenticators:
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


def with_authenticated(user: UserInfo) -> UserInfo:
    """Add system:authenticated to a user's groups, unless they are anonymous or have it."""
    if user.name == ANONYMOUS or AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))


@dataclass(frozen=True, slots=True)
class AnonymousPolicy:
    """Which paths may be asked for without saying who one is; `paths` None: all of them."""

    enabled: bool = True
    paths: Collection[str] | None = HEALTH_PATHS

    def user(self, path: str, method: str = "GET") -> UserInfo | None:
        """Return the anonymous user where a path is open to them, None where a credential is needed (401)."""
        if self.enabled and (self.paths is None or path in self.paths or (method, path) == ("GET", DISCOVERY_PATH)):
            return ANONYMOUS_USER
        return None
