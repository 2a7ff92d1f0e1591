"""The Secrets that a PersistentVolume or a pod gives to the driver."""

from __future__ import annotations

import base64

from kube.api import core_v1
from kube.client import Client


async def read(client: Client, reference: tuple[str, str] | None) -> dict[str, str]:
    """Return the contents of a Secret by namespace and name, nothing for None. Raise StatusError."""
    if reference is None:
        return {}
    namespace, name = reference
    found = await client.get(core_v1.Secret, name, namespace)
    return {key: base64.b64decode(text).decode() for key, text in found.data.items()}
