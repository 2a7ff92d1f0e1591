"""User, request attributes and decision: the types of authentication and authorization.

These are created for every request, so they are msgspec structs: a frozen dataclass of eleven fields takes 4 µs to make.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

SYSTEM_MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"


class UserInfo(msgspec.Struct, frozen=True):
    """An authenticated user: name, uid, groups and extra, as upstream's user.Info."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


def user_info(user: UserInfo) -> dict[str, Any]:
    """Write a user as authentication.k8s.io/v1 UserInfo, without what is empty."""
    found: dict[str, Any] = {"username": user.name}
    if user.uid:
        found["uid"] = user.uid
    if user.groups:
        found["groups"] = list(user.groups)
    if user.extra:
        found["extra"] = {key: list(values) for key, values in sorted(user.extra.items())}
    return found


class AuthzAttributes(msgspec.Struct, frozen=True, kw_only=True):
    """One request as the authorizers see it; `path` only for non-resource requests.

    `verb` is get, list, watch, create, update, patch, delete, deletecollection, proxy, ... for resources and the
    lower-case HTTP method otherwise.
    """

    user: UserInfo
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    field_selector: str = ""
    label_selector: str = ""
    unnamed_resource: bool = False
    """A question about a resource with an empty name, as a review may put it; "*" alone covers it."""

    @property
    def is_resource(self) -> bool:
        return bool(self.resource) or self.unnamed_resource


class Decision(enum.Enum):
    ALLOW = "allow"
    DENY = "deny"
    NO_OPINION = "no opinion"


class Authorizer(Protocol):
    """Says what a user may do. The first of a chain that does not answer NO_OPINION decides; none means denied."""

    def authorize(self, attributes: AuthzAttributes) -> tuple[Decision, str]:
        """Return the decision and the reason for it, from memory and without waiting.

        Where somebody elsewhere must be asked it raises authorizers.DecisionPending; authorizers.decide can wait.
        """
        ...


class Credentials(msgspec.Struct, frozen=True):
    """Credentials of a request: the verified client certificate (DER) and the bearer token, if any, and all its headers.

    `client` (kube.client_waits.Waiting) is who waits for a review of them; None inside this process.
    """

    certificate: bytes | None = None
    token: str | None = None
    headers: Sequence[tuple[bytes, bytes]] = ()
    client: Any = None


class Authenticator(Protocol):
    """Turns credentials into a user."""

    async def authenticate(self, credentials: Credentials) -> UserInfo | None:
        """Return the user, None if this kind of credential is absent, or raise StatusError(401) where it is bad."""
        ...
