"""Reads the CSIDriver object of a driver, always as it is now (it may change while pods wait or run), and its requirements."""

from __future__ import annotations

from agent.volumes.payload import VolumeError
from kube.api import storage_v1
from kube.client import Client
from kube.errors import StatusError

_STEP = "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode"


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


def check_lifecycle_mode(name: str, about: storage_v1.CSIDriver | None, *, ephemeral: bool) -> None:
    """Refuse a volume of a mode that its driver does not support (csi_mounter.go). Raise VolumeError.

    A driver without an object supports persistent volumes only.
    """
    mode = "Ephemeral" if ephemeral else "Persistent"
    if about is None and not ephemeral:
        return
    if about is None:
        raise VolumeError(f'{_STEP}: volume mode "{mode}" not supported by driver {name} (no CSIDriver object)')
    modes = about.spec.volume_lifecycle_modes or ["Persistent"]
    if mode not in modes:
        listed = " ".join(f'"{one}"' for one in modes)
        raise VolumeError(f'{_STEP}: volume mode "{mode}" not supported by driver {name} (only supports [{listed}])')
