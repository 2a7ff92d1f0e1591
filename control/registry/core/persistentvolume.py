"""PersistentVolumes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, UNSET, Column, created, name_of
from control.registry.core.storage_cells import access_modes, phase
from control.registry.strategy import Object, Strategy
from control.registry.tables import age
from kube.quantity import canonical

CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def class_of(obj: Object) -> str:
    """Return the storage class of a volume or a claim; the annotation of old times goes first."""
    annotations = obj.get("metadata", {}).get("annotations") or {}
    found: str = annotations.get(CLASS_ANNOTATION) or (obj.get("spec") or {}).get("storageClassName") or ""
    return found


class PersistentVolumeStrategy(Strategy):
    columns = (
        NAME,
        Column("Capacity"),
        Column("Access Modes"),
        Column("Reclaim Policy"),
        Column("Status"),
        Column("Claim"),
        Column("StorageClass"),
        Column("VolumeAttributesClass"),
        Column("Reason"),
        AGE,
        Column("VolumeMode", priority=1),
    )
    has_generation = False

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        if not spec.get("persistentVolumeReclaimPolicy"):
            spec["persistentVolumeReclaimPolicy"] = "Retain"
        if not spec.get("volumeMode"):
            spec["volumeMode"] = "Filesystem"
        status = obj.get("status")
        if not status or not status.get("phase"):
            obj.setdefault("status", {})["phase"] = "Pending"
        if spec.get("hostPath") is not None:
            spec["hostPath"].setdefault("type", "")
        if spec.get("iscsi") is not None and not spec["iscsi"].get("iscsiInterface"):
            spec["iscsi"]["iscsiInterface"] = "default"

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"phase": "Pending"}

    def fields(self, obj: Object) -> dict[str, str]:
        return {"name": name_of(obj)}

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        claim = spec.get("claimRef")
        size = (spec.get("capacity") or {}).get("storage")
        return [
            name_of(obj),
            canonical(size) if size is not None else "0",
            access_modes(spec.get("accessModes")),
            spec.get("persistentVolumeReclaimPolicy") or "",
            phase(obj),
            f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
            class_of(obj),
            spec.get("volumeAttributesClassName") or UNSET,
            status.get("reason") or "",
            age(created(obj), now),
            spec.get("volumeMode") or UNSET,
        ]
