"""The Secrets that a PersistentVolume or a pod gives to the driver."""

from __future__ import annotations

import base64

from agent.volumes.payload import VolumeError
from kube.api import core_v1
from kube.client import Client


async def read(client: Client, reference: tuple[str, str] | None) -> dict[str, str]:
    """Return the contents of a Secret by namespace and name, nothing for None. Raise StatusError and VolumeError.

    CSI secrets are text: values that are not UTF-8 cannot be passed to a driver.
    """
    if reference is None:
        return {}
    namespace, name = reference
    found = await client.get(core_v1.Secret, name, namespace)
    return {key: _text(namespace, name, key, value) for key, value in found.data.items()}


def _text(namespace: str, name: str, key: str, value: str) -> str:
    try:
        return base64.b64decode(value).decode()
    except ValueError:
        raise VolumeError(f"secret {namespace}/{name}: the value of {key!r} is no UTF-8 text") from None
