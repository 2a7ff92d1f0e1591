"""Builds the parts of a CSI request: access mode, file system, volume context. Pure (pkg/volume/csi)."""

from __future__ import annotations

import json
from collections.abc import Mapping

from agent.csi.messages import AccessMode, VolumeCapability
from agent.volumes.csi_volume import Volume
from kube.api import core_v1

TOKENS = "csi.storage.k8s.io/serviceAccount.tokens"
_MODES = {
    "ReadWriteMany": AccessMode.MULTI_NODE_MULTI_WRITER,
    "ReadOnlyMany": AccessMode.MULTI_NODE_READER_ONLY,
    "ReadWriteOnce": AccessMode.SINGLE_NODE_WRITER,
    "ReadWriteOncePod": AccessMode.SINGLE_NODE_WRITER,
}
_MODES_TOLD_APART = {
    **_MODES,
    "ReadWriteOnce": AccessMode.SINGLE_NODE_MULTI_WRITER,
    "ReadWriteOncePod": AccessMode.SINGLE_NODE_SINGLE_WRITER,
}


def capability(volume: Volume, *, tells_writers_apart: bool, group: int | None = None) -> VolumeCapability:
    """Return how the volume is to be used; `group` is the fsGroup where the driver itself sees to it."""
    modes = _MODES_TOLD_APART if tells_writers_apart else _MODES
    mode = AccessMode(mode=modes.get(volume.access_mode, AccessMode.UNKNOWN))
    if volume.block:
        return VolumeCapability(block=VolumeCapability.BlockVolume(), access_mode=mode)
    mount = VolumeCapability.MountVolume(
        fs_type=volume.fs_type,
        mount_flags=volume.mount_options,
        volume_mount_group="" if group is None else str(group),
    )
    return VolumeCapability(mount=mount, access_mode=mode)


def pod_context(pod: core_v1.Pod, *, ephemeral: bool) -> dict[str, str]:
    """Return the volume context about the pod for a driver with podInfoOnMount."""
    return {
        "csi.storage.k8s.io/pod.name": pod.metadata.name or "",
        "csi.storage.k8s.io/pod.namespace": pod.metadata.namespace or "",
        "csi.storage.k8s.io/pod.uid": pod.metadata.uid or "",
        "csi.storage.k8s.io/serviceAccount.name": pod.spec.service_account_name or "",
        "csi.storage.k8s.io/ephemeral": "true" if ephemeral else "false",
    }


def tokens_context(tokens: Mapping[str, tuple[str, str]]) -> str:
    """Write tokens (audience to text and expiry) in the form that drivers read."""
    return json.dumps(
        {audience: {"token": text, "expirationTimestamp": expires} for audience, (text, expires) in tokens.items()}
    )


def wants_group(policy: str | None, volume: Volume) -> bool:
    """Return whether the agent sets the volume's ownership to the pod's fsGroup (CSIDriver.spec.fsGroupPolicy)."""
    if volume.read_only or volume.block or policy == "None":
        return False
    if policy == "File":
        return True
    return bool(volume.fs_type) and volume.for_one_node
