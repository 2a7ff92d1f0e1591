"""A volume that is set up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kube.api import core_v1


@dataclass(frozen=True, slots=True)
class MountedVolume:
    """A volume's path on the host, and how containers may mount it."""

    path: Path
    read_only: bool = False
    device: bool = False
    """The path leads to a block device, which containers get as a device."""
    group: int | None = None
    """A supplemental group of the pod's processes."""
    image: core_v1.ImageVolumeSource | None = None
    """The runtime mounts an image, by `image_id` once it is there; the path means nothing."""
    image_id: str = ""
