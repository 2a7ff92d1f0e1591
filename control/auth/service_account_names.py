"""User names and groups of service accounts (pkg/serviceaccount/util.go)."""

from __future__ import annotations

PREFIX = "system:serviceaccount:"
GROUP = "system:serviceaccounts"


def username(namespace: str, name: str) -> str:
    return f"{PREFIX}{namespace}:{name}"


def groups_of(namespace: str) -> tuple[str, ...]:
    return (GROUP, f"{GROUP}:{namespace}")


def split_username(user: str) -> tuple[str, str] | None:
    """Return (namespace, name) of a service account's user name, None if it is not one."""
    if not user.startswith(PREFIX):
        return None
    parts = user.removeprefix(PREFIX).split(":")
    return (parts[0], parts[1]) if len(parts) == 2 and all(parts) else None
