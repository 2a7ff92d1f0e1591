"""Gateways of generated objects, as their labels and annotations say."""

from __future__ import annotations

from typing import Any

from kube.gateway.names import NAMESPACE, OWNER, UID
from kube.object_names import namespace_of


def owner_of(found: Any) -> tuple[str, ...]:
    """Return the key of the Gateway that an object was generated for."""
    if namespace_of(found) != NAMESPACE or UID not in found.metadata.labels:
        return ()
    return (found.metadata.annotations.get(OWNER, ""),)
