"""VolumeAttachments: that a volume shall be attached to a node, and whether it is."""

from __future__ import annotations

from control.registry.checks import MAX_INT32, Errors
from control.registry.core.pod.volume_sources import driver_name
from control.registry.rows import Rows
from control.registry.rules import between, form, max_bytes, max_map_bytes
from control.registry.strategy import OBJECT_META, Strategy
from control.registry.table_cells import AGE, NAME, Column, Field
from kube.errors import FieldError, forbidden_field, required
from kube.json_object import Object
from kube.names import dns1123_subdomain

_LARGEST = 256 * 1024
"""Bytes of a driver's metadata, or of an error's message."""
_ONE_SOURCE = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


def _one_source(source: Object | None, path: str) -> Errors:
    volume, inline = ((source or {}).get(key) for key in ("persistentVolumeName", "inlineVolumeSpec"))
    if volume is None and inline is None:
        return [required(path, _ONE_SOURCE)]
    if volume is not None and inline is not None:
        return [forbidden_field(path, _ONE_SOURCE)]
    if volume == "":
        return [required(f"{path}.persistentVolumeName", "must specify non empty persistentVolumeName")]
    return []


_ERROR = Rows(("message", max_bytes(_LARGEST)), ("errorCode", between(0, MAX_INT32)))
_STATUS = Rows(
    ("status.attachmentMetadata", max_map_bytes(_LARGEST)),
    ("status.attachError", _ERROR),
    ("status.detachError", _ERROR),
)


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
    field_rules = Rows(
        ("spec.attacher", driver_name),
        ("spec.nodeName", form(dns1123_subdomain)),
        ("spec.source", _one_source),
        ("spec.source.persistentVolumeName?", form(dns1123_subdomain)),
    )
    immutable = ("spec",)
    allow_unconditional_update = False
    has_generation = False

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"attached": False}

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        return self.validate(obj) + _STATUS.errors(obj)
