"""Owner of the work that a user's requests take: the service accounts of a namespace share one.

Whoever may create accounts in a namespace has as many user names as they like, so that fair queues and limits over user names
would give them as many shares. The accounts of kube-system belong to the cluster's own components, which are separate owners.
"""

from __future__ import annotations

ACCOUNTS = "system:serviceaccount:"
_SYSTEM_ACCOUNTS = f"{ACCOUNTS}kube-system:"


def owner_of(user: str) -> str:
    """Return whose share a user's work takes: system:serviceaccount:NAMESPACE for a service account, else the user."""
    if user.startswith(ACCOUNTS) and not user.startswith(_SYSTEM_ACCOUNTS):
        return user.rpartition(":")[0]
    return user
