"""Reads the CSIDriver object of a driver, always as it is now: it may change while pods wait or run."""

from __future__ import annotations

from kube.api import storage_v1
from kube.client import Client
from kube.errors import StatusError


async def read(client: Client, name: str) -> storage_v1.CSIDriver | None:
    """Return a driver's object, None if there is none. Raise StatusError."""
    try:
        return await client.get(storage_v1.CSIDriver, name)
    except StatusError as error:
        if error.not_found:
            return None
        raise


def requires_attachment(spec: storage_v1.CSIDriverSpec) -> bool:
    """Return whether the driver's volumes are attached before their use: the default (csi_plugin.go: skipAttach)."""
    return spec.attach_required is not False


def spec_of(about: storage_v1.CSIDriver | None) -> storage_v1.CSIDriverSpec:
    """Return what a driver asks for; the defaults where it has no object."""
    return about.spec if about is not None else storage_v1.CSIDriverSpec()
