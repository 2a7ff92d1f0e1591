"""Statuses of claims that the PV binder writes. Upstream: updateClaimStatus in pv_controller.go. Pure."""

from __future__ import annotations

import msgspec

from kube.api import core_v1

Status = core_v1.PersistentVolumeClaimStatus


def bound_status(before: Status, volume: core_v1.PersistentVolume) -> Status:
    """Return the status of a bound claim; capacity and VolumeAttributesClass of one that was bound are the resizer's."""
    capacity = before.capacity if before.phase == "Bound" else volume.spec.capacity
    current = before.current_volume_attributes_class_name
    if before.phase in ("Pending", None):
        current = volume.spec.volume_attributes_class_name
    return msgspec.structs.replace(
        before,
        phase="Bound",
        access_modes=volume.spec.access_modes,
        capacity=capacity,
        current_volume_attributes_class_name=current,
    )


def lost_status(before: Status) -> Status:
    """Return the status of a claim without its volume."""
    return msgspec.structs.replace(
        before, phase="Lost", access_modes=[], capacity={}, current_volume_attributes_class_name=None
    )
