"""Tokens kept in Secrets (type kubernetes.io/service-account-token): without expiry, for what cannot renew a token.

They are made only where somebody creates such a Secret. One is good as long as the Secret holds exactly it, the account has
the uid it had, and the cleaner of unused ones (control.controllers.legacy_tokens) has not marked the Secret. Their issuer
and claims are older than bound tokens' (pkg/serviceaccount/legacy.go).
"""

from __future__ import annotations

import hmac
from datetime import datetime

from control.auth.encoding import secret_text
from kube.json_object import Object

ISSUER = "kubernetes/serviceaccount"
SECRET_TYPE = "kubernetes.io/service-account-token"
NAME_ANNOTATION, UID_ANNOTATION = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
LAST_USED, INVALID_SINCE = "kubernetes.io/legacy-token-last-used", "kubernetes.io/legacy-token-invalid-since"
"""Labels of such a Secret: the day of its last use, and the day from which on it is refused."""
TRACKING = "kube-apiserver-legacy-service-account-token-tracking"
"""The ConfigMap in kube-system with the day since which uses are recorded."""
_CLAIM = "kubernetes.io/serviceaccount/"


def make_claims(namespace: str, account: str, account_uid: str, secret: str) -> Object:
    """Build the claims of a Secret's token."""
    return {
        "iss": ISSUER,
        _CLAIM + "namespace": namespace,
        _CLAIM + "secret.name": secret,
        _CLAIM + "service-account.name": account,
        _CLAIM + "service-account.uid": account_uid,
        "sub": f"system:serviceaccount:{namespace}:{account}",
    }


def read_claims(claims: Object) -> tuple[str, str, str, str]:
    """Return namespace, account, the account's uid and the Secret's name."""
    names = ("namespace", "service-account.name", "service-account.uid", "secret.name")
    namespace, account, uid, secret = (str(claims.get(_CLAIM + name, "")) for name in names)
    return namespace, account, uid, secret


def holds(secret: Object | None, token: str, now: datetime) -> bool:
    """Return whether a Secret still stands for a token."""
    if secret is None or secret.get("type") != SECRET_TYPE:
        return False
    deleted = secret["metadata"].get("deletionTimestamp")
    if deleted and datetime.fromisoformat(deleted) <= now:
        return False
    return hmac.compare_digest(secret_text(secret, "token").encode(), token.encode())
