"""Checks that a driver makes ephemeral volumes, as its CSIDriver object says. Pure."""

from __future__ import annotations

from agent.volumes.payload import VolumeError
from kube.api import storage_v1


def check(name: str, about: storage_v1.CSIDriver | None) -> None:
    """Refuse an ephemeral volume where its driver does not support them. Raise VolumeError."""
    if about is None:
        raise VolumeError(
            f'kubernetes.io/csi: volume mode "Ephemeral" not supported by driver {name} (no CSIDriver object)'
        )
    modes = about.spec.volume_lifecycle_modes or ["Persistent"]
    if "Ephemeral" not in modes:
        listed = " ".join(f'"{mode}"' for mode in modes)
        text = f'volume mode "Ephemeral" not supported by driver {name} (only supports [{listed}])'
        raise VolumeError(f"kubernetes.io/csi: mounter.SetUpAt failed to check volume lifecycle mode: {text}")
