"""PodTemplates: a template on its own."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import NAME, Column, containers_and_images, labels_text, name_of
from control.registry.core.pod_defaults import default_template
from control.registry.core.podspec import validate_template
from control.registry.strategy import Object, Strategy
from kube.errors import FieldError


class PodTemplateStrategy(Strategy):
    returns_deleted = True
    columns = (NAME, Column("Containers"), Column("Images"), Column("Pod Labels"))
    allow_create_on_update = True

    def default(self, obj: Object) -> None:
        default_template(obj)

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_template(obj.get("template") or {}, "template")

    def row(self, obj: Object, now: datetime) -> list[Any]:
        template = obj.get("template") or {}
        names, images = containers_and_images(template.get("spec"))
        return [name_of(obj), names, images, labels_text((template.get("metadata") or {}).get("labels"))]
