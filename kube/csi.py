"""Identifiers of a CSI volume that the node, the control plane and drivers' controllers share (pkg/volume/csi)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

_PREFIX = "kubernetes.io/csi/"


def unique_name(driver: str, handle: str) -> str:
    """Return the name under which a node's status lists a volume as in use or attached."""
    return f"{_PREFIX}{driver}^{handle}"


def is_unique_name(name: str) -> bool:
    """Return whether a name in a node's status is a CSI volume's."""
    return name.startswith(_PREFIX) and "^" in name


def split_unique_name(name: str) -> tuple[str, str]:
    """Return the driver and the handle that `unique_name` was given. A driver's name has no ^."""
    driver, _, handle = name.removeprefix(_PREFIX).partition("^")
    return driver, handle


def attachment_name(driver: str, handle: str, node: str) -> str:
    """Return the name of the VolumeAttachment that brings a volume to a node."""
    return f"csi-{hashlib.sha256(f'{handle}{driver}{node}'.encode()).hexdigest()}"


def attached_volume(attachment: str, node: str, volumes: Iterable[str]) -> str:
    """Return which of a node's volumes, by their unique names, a VolumeAttachment of this name is for; "" for none of them."""
    for volume in filter(is_unique_name, volumes):
        if attachment_name(*split_unique_name(volume), node) == attachment:
            return volume
    return ""


def is_attachment_name(name: str) -> bool:
    """Return whether a VolumeAttachment's name is of the form that `attachment_name` gives."""
    return re.fullmatch("csi-[0-9a-f]{64}", name) is not None
