"""PersistentVolumeClaims, on their own and as templates of a StatefulSet."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, UNSET, Column, created, name_of
from control.registry.core.persistentvolume import class_of
from control.registry.core.storage_cells import access_modes, phase
from control.registry.strategy import Object, Strategy
from control.registry.tables import age
from kube.quantity import canonical


def default_claim(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("volumeMode"):
        spec["volumeMode"] = "Filesystem"
    if not (obj.get("status") or {}).get("phase"):
        obj.setdefault("status", {})["phase"] = "Pending"
    _mirror_sources(spec)


def _mirror_sources(spec: Object) -> None:
    """Keep dataSource and dataSourceRef, two names of one thing, the same; a namespaced reference has the new name only."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source and not reference:
        spec["dataSourceRef"] = dict(source)
    elif reference and not source and not reference.get("namespace"):
        spec["dataSource"] = {k: v for k, v in reference.items() if k in ("apiGroup", "kind", "name")}


class PersistentVolumeClaimStrategy(Strategy):
    columns = (
        NAME,
        Column("Status"),
        Column("Volume"),
        Column("Capacity"),
        Column("Access Modes"),
        Column("StorageClass"),
        Column("VolumeAttributesClass"),
        AGE,
        Column("VolumeMode", priority=1),
    )
    has_generation = False

    def default(self, obj: Object) -> None:
        default_claim(obj)

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"phase": "Pending"}

    def fields(self, obj: Object) -> dict[str, str]:
        return {"name": name_of(obj)}

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        volume, size, modes = spec.get("volumeName") or "", "", ""
        if volume:
            modes = access_modes(status.get("accessModes"))
            size = canonical((status.get("capacity") or {}).get("storage", 0))
        return [
            name_of(obj),
            phase(obj),
            volume,
            size,
            modes,
            class_of(obj),
            spec.get("volumeAttributesClassName") or UNSET,
            age(created(obj), now),
            spec.get("volumeMode") or UNSET,
        ]
