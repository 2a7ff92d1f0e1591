"""VolumeAttachments: that a volume shall be attached to a node, and whether it is."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, Column, created, name_of
from control.registry.strategy import Object, Strategy
from control.registry.tables import age
from kube.errors import FieldError, invalid_value, required


class VolumeAttachmentStrategy(Strategy):
    columns = (
        NAME,
        Column("Attacher", format="name", description="Who attaches."),
        Column("PV", description="What is attached."),
        Column("Node", description="Where."),
        Column("Attached", "boolean", description="Whether it is done."),
        AGE,
    )
    allow_unconditional_update = False
    has_generation = False

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"attached": False}

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = [required(f"spec.{key}") for key in ("attacher", "nodeName") if not spec.get(key)]
        source = spec.get("source") or {}
        if source.get("persistentVolumeName") is None and source.get("inlineVolumeSpec") is None:
            errors.append(
                required("spec.source", "must specify exactly one of inlineVolumeSpec and persistentVolumeName")
            )
        return errors

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        if obj.get("spec") == old.get("spec"):
            return []
        return [invalid_value("spec", obj.get("spec"), "field is immutable")]

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec = obj.get("spec") or {}
        return [
            name_of(obj),
            spec.get("attacher") or "",
            (spec.get("source") or {}).get("persistentVolumeName") or "",
            spec.get("nodeName") or "",
            bool((obj.get("status") or {}).get("attached")),
            age(created(obj), now),
        ]
