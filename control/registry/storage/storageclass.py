"""StorageClasses and VolumeAttributesClasses: how volumes are made, and how they may be changed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, Column, created, name_of
from control.registry.strategy import Object, Strategy
from control.registry.tables import age
from kube.errors import FieldError, forbidden_field, not_supported, required

DEFAULT_ANNOTATION = "storageclass.kubernetes.io/is-default-class"
_FROZEN = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")


class StorageClassStrategy(Strategy):
    columns = (
        NAME,
        Column("Provisioner", description="Who makes the volumes."),
        Column("ReclaimPolicy", description="What becomes of a volume that is no longer claimed."),
        Column("VolumeBindingMode", description="When a volume is made and bound."),
        Column("AllowVolumeExpansion", description="Whether claims may grow."),
        AGE,
    )
    has_generation = False

    def default(self, obj: Object) -> None:
        for key, value in (("reclaimPolicy", "Delete"), ("volumeBindingMode", "Immediate")):
            if not obj.get(key):
                obj[key] = value

    def validate(self, obj: Object) -> list[FieldError]:
        errors = [] if obj.get("provisioner") else [required("provisioner")]
        for key, allowed in (
            ("reclaimPolicy", ("Delete", "Retain")),
            ("volumeBindingMode", ("Immediate", "WaitForFirstConsumer")),
        ):
            if obj.get(key) not in allowed:
                errors.append(not_supported(key, obj.get(key), allowed))
        return errors

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        said = {
            "parameters": "updates to parameters are forbidden.",
            "provisioner": "updates to provisioner are forbidden.",
            "reclaimPolicy": "updates to reclaimPolicy are forbidden.",
            "volumeBindingMode": "field is immutable",
        }
        changed = [key for key in _FROZEN if (obj.get(key) or None) != (old.get(key) or None)]
        return [forbidden_field(key, said[key]) for key in changed]

    def row(self, obj: Object, now: datetime) -> list[Any]:
        annotations = obj.get("metadata", {}).get("annotations") or {}
        default = " (default)" if annotations.get(DEFAULT_ANNOTATION) == "true" else ""
        return [
            name_of(obj) + default,
            obj.get("provisioner") or "",
            obj.get("reclaimPolicy") or "Delete",
            obj.get("volumeBindingMode") or "Immediate",
            bool(obj.get("allowVolumeExpansion")),
            age(created(obj), now),
        ]


class VolumeAttributesClassStrategy(Strategy):
    columns = (NAME, Column("DriverName", description="Whose attributes they are."), AGE)
    has_generation = False

    def validate(self, obj: Object) -> list[FieldError]:
        errors = [] if obj.get("driverName") else [required("driverName")]
        return (
            errors
            if obj.get("parameters")
            else [*errors, required("parameters", "must contain at least one key/value pair")]
        )

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        keys = [k for k in ("driverName", "parameters") if obj.get(k) != old.get(k)]
        return [forbidden_field(key, f"updates to {key} are forbidden.") for key in keys]

    def row(self, obj: Object, now: datetime) -> list[Any]:
        return [name_of(obj), obj.get("driverName") or "", age(created(obj), now)]
