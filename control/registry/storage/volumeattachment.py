"""VolumeAttachments: that a volume shall be attached to a node, and whether it is."""

from __future__ import annotations

from control.registry.changes import validate_immutable
from control.registry.checks import MAX_INT32, each, in_range
from control.registry.core.pod.volume_sources import driver_name
from control.registry.strategy import OBJECT_META, Strategy
from control.registry.table_cells import AGE, NAME, Column, Field
from kube.errors import FieldError, forbidden_field, required, too_long
from kube.json_object import Object
from kube.names import dns1123_subdomain

_LARGEST = 256 * 1024
"""Bytes of a driver's metadata, or of an error's message."""
_ONE_SOURCE = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


class VolumeAttachmentStrategy(Strategy):
    status_keeps = OBJECT_META
    columns = (
        NAME,
        Column("Attacher", Field("spec.attacher"), "Who attaches.", format="name"),
        Column("PV", Field("spec.source.persistentVolumeName"), "What is attached."),
        Column("Node", Field("spec.nodeName"), "Where."),
        Column("Attached", Field("status.attached", False), "Whether it is done.", type="boolean"),
        AGE,
    )
    allow_unconditional_update = False
    has_generation = False

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"attached": False}

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        source, path = spec.get("source") or {}, "spec.source"
        errors = driver_name(spec.get("attacher") or "", "spec.attacher")
        node = spec.get("nodeName") or ""
        errors += each("spec.nodeName", node, dns1123_subdomain(node))
        volume, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
        if volume is None and inline is None:
            errors.append(required(path, _ONE_SOURCE))
        elif volume is not None and inline is not None:
            errors.append(forbidden_field(path, _ONE_SOURCE))
        elif volume == "":
            errors.append(required(f"{path}.persistentVolumeName", "must specify non empty persistentVolumeName"))
        return errors + (
            [] if volume is None else each(f"{path}.persistentVolumeName", volume, dns1123_subdomain(volume))
        )

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return self.validate(obj) + validate_immutable(obj, old, "spec")

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        status = obj.get("status") or {}
        errors = self.validate(obj)
        size = sum(
            len(key.encode()) + len(value.encode()) for key, value in (status.get("attachmentMetadata") or {}).items()
        )
        if size > _LARGEST:
            errors.append(too_long("status.attachmentMetadata", _LARGEST))
        for key in ("attachError", "detachError"):
            found = status.get(key) or {}
            if len((found.get("message") or "").encode()) > _LARGEST:
                errors.append(too_long(f"status.{key}.message", _LARGEST))
            if found.get("errorCode") is not None and found["errorCode"] < 0:
                errors += in_range(found["errorCode"], 0, MAX_INT32, f"status.{key}.errorCode")
        return errors
