"""Claims of a service account's token: written and validated (pkg/serviceaccount/claims.go)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from control.auth import secret_tokens
from control.auth.service_account_names import groups_of, username
from control.auth.user import AUTHENTICATED, UserInfo
from control.auth.x509 import CREDENTIAL_ID
from kube.errors import unauthorized

_EXTRA = "authentication.kubernetes.io/"

Claims = dict[str, Any]


class Bound(msgspec.Struct, frozen=True):
    """Objects that a token is bound to besides its account."""

    kind: str
    name: str
    uid: str


def make_claims(
    issuer: str,
    account: dict[str, Any],
    audiences: Sequence[str],
    issued: datetime,
    seconds: int,
    *,
    pod: Bound | None = None,
    secret: Bound | None = None,
    node: Bound | None = None,
    warn_after: int = 0,
) -> Claims:
    """Build a bound token's claims; times in seconds, `warn_after` 0 is none. A pod's token may name its node too."""
    metadata, now = account["metadata"], int(issued.timestamp())
    private: Claims = {
        "namespace": metadata["namespace"],
        "serviceaccount": {"name": metadata["name"], "uid": metadata["uid"]},
    }
    for key, bound in (("pod", pod), ("secret", secret), ("node", node)):
        if bound is not None:
            private[key] = {"name": bound.name, "uid": bound.uid}
    if warn_after:
        private["warnafter"] = now + warn_after
    return {
        "aud": list(audiences),
        "exp": now + seconds,
        "iat": now,
        "iss": issuer,
        "jti": str(uuid.uuid4()),
        "kubernetes.io": private,
        "nbf": now,
        "sub": username(metadata["namespace"], metadata["name"]),
    }


class TokenContent(NamedTuple):
    """Content of a token signed by this server: its user, times, audiences, and the objects that must exist for it to be valid.

    The content of a Secret's token is what `secret` has, in the order of `secret_tokens.read_claims`, and its user.
    """

    user: UserInfo
    audiences: frozenset[str] = frozenset()
    not_before: float = 0
    expires: float = 0
    bound: tuple[tuple[str, str, str, str], ...] = ()
    """Resource, namespace, name and uid of each object."""
    secret: tuple[str, str, str, str] | None = None


def read(claims: Claims) -> TokenContent:
    """Read a token's claims; raises 401 if they contradict each other."""
    if claims["iss"] == secret_tokens.ISSUER:
        return _of_secret(claims)
    private = claims.get("kubernetes.io") or {}
    namespace, account = private.get("namespace", ""), private.get("serviceaccount") or {}
    name, uid = account.get("name", ""), account.get("uid", "")
    if claims.get("sub") != username(namespace, name):
        raise unauthorized()
    bound = [("serviceaccounts", namespace, name, uid)]
    extra: dict[str, tuple[str, ...]] = {}
    if "jti" in claims:
        extra[CREDENTIAL_ID] = (f"JTI={claims['jti']}",)
    if secret := private.get("secret"):
        bound.append(_object("secrets", namespace, secret))
    if pod := private.get("pod"):
        bound.append(_object("pods", namespace, pod))
        extra[_EXTRA + "pod-name"], extra[_EXTRA + "pod-uid"] = (pod["name"],), (pod["uid"],)
    if node := private.get("node"):
        if not pod:  # a pod's token tells the node, but is bound to the pod alone
            bound.append(_object("nodes", "", node))
        extra[_EXTRA + "node-name"] = (node["name"],)
        if node.get("uid"):
            extra[_EXTRA + "node-uid"] = (node["uid"],)
    audiences = claims.get("aud", [])
    return TokenContent(
        UserInfo(username(namespace, name), uid, _groups(namespace), extra),
        frozenset((audiences,) if isinstance(audiences, str) else audiences),
        claims.get("nbf", 0),
        claims.get("exp", 0),
        tuple(bound),
    )


def _of_secret(claims: Claims) -> TokenContent:
    secret = secret_tokens.read_claims(claims)
    namespace, name, uid, _ = secret
    if claims.get("sub") != username(namespace, name):
        raise unauthorized()
    return TokenContent(UserInfo(username(namespace, name), uid, _groups(namespace)), secret=secret)


def _groups(namespace: str) -> tuple[str, ...]:
    """Return all groups of an account, so that none has to be added to its user at each request."""
    return (*groups_of(namespace), AUTHENTICATED)


def _object(resource: str, namespace: str, ref: Claims) -> tuple[str, str, str, str]:
    return resource, namespace, ref.get("name", ""), ref.get("uid", "")
