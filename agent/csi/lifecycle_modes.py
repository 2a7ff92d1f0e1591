"""Checks that a driver supports a volume's lifecycle mode, as its CSIDriver object says (csi_mounter.go). Pure."""

from __future__ import annotations

from agent.volumes.payload import VolumeError
from kube.api import storage_v1

_STEP = "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode"


def check(name: str, about: storage_v1.CSIDriver | None, *, ephemeral: bool) -> None:
    """Refuse a volume of a mode that its driver does not support. Raise VolumeError.

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
