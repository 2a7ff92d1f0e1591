"""PodTemplates: a template on its own."""

from __future__ import annotations

from control.registry.core.pod.defaults import default_template
from control.registry.core.pod.spec import validate_template
from control.registry.core.pod.warnings import template_warnings
from control.registry.strategy import Strategy
from control.registry.table_cells import (
    NAME,
    Column,
    Field,
    images_of,
    labels_text,
    names_of,
)
from kube.errors import FieldError
from kube.json_object import Object


class PodTemplateStrategy(Strategy):
    returns_deleted = True
    columns = (
        NAME,
        Column("Containers", Field("template.spec.containers", show=names_of)),
        Column("Images", Field("template.spec.containers", show=images_of)),
        Column("Pod Labels", Field("template.metadata.labels", show=labels_text)),
    )
    allow_create_on_update = True

    def default(self, obj: Object) -> None:
        default_template(obj)

    def validate(self, obj: Object) -> list[FieldError]:
        return list(validate_template(obj.get("template") or {}, "template"))

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        return template_warnings(obj, old, "template")
