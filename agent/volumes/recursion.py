"""Whether a read-only mount is read-only all the way down (KEP-3857). Pure."""

from __future__ import annotations

from agent.podspec.environment import ConfigError
from kube.api import core_v1


def recursive_read_only(mount: core_v1.VolumeMount, *, read_only: bool, supported: bool) -> bool:
    """Tell whether mounts below are to be read-only too; IfPossible goes by the runtime. Raise ConfigError."""
    wanted = mount.recursive_read_only
    if wanted in (None, "Disabled") or not read_only:
        return False
    if supported:
        return True
    if wanted == "IfPossible":
        return False
    raise ConfigError(
        f'volume "{mount.name}" requested recursive read-only mode, but it is not supported by the runtime'
    )
