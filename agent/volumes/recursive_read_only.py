"""Decides whether a read-only mount is recursively read-only (KEP-3857). Pure."""

from __future__ import annotations

from agent.podspec.environment import ContainerConfigError
from kube.api import core_v1


def recursive_read_only(mount: core_v1.VolumeMount, *, read_only: bool, supported: bool) -> bool:
    """Return whether mounts below are to be read-only too; IfPossible depends on the runtime. Raise ContainerConfigError."""
    wanted = mount.recursive_read_only
    if wanted in (None, "Disabled") or not read_only:
        return False
    if supported:
        return True
    if wanted == "IfPossible":
        return False
    raise ContainerConfigError(
        f'volume "{mount.name}" requested recursive read-only mode, but it is not supported by the runtime'
    )
