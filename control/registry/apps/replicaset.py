"""ReplicaSets: defaults, columns and what may change."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    SELECTOR,
    Column,
    containers_and_images,
    created,
    name_of,
    selector_text,
    template_spec,
)
from control.registry.core.pod_defaults import default_template
from control.registry.strategy import Object, Strategy
from control.registry.tables import age

REPLICA_COLUMNS = (
    NAME,
    Column("Desired", "integer", description="Pods that are wanted."),
    Column("Current", "integer", description="Pods that are there."),
    Column("Ready", "integer", description="Pods that are ready."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
)


class ReplicaSetStrategy(Strategy):
    columns = REPLICA_COLUMNS

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        default_template(spec)
        if spec.get("replicas") is None:
            spec["replicas"] = 1

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"replicas": 0}

    def fields(self, obj: Object) -> dict[str, str]:
        return {"status.replicas": str((obj.get("status") or {}).get("replicas", 0))}

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec = obj.get("spec") or {}
        return replica_row(obj, now, selector_text(spec.get("selector")))


def replica_row(obj: Object, now: datetime, selector: str) -> list[Any]:
    """Return the cells of a ReplicaSet or ReplicationController."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    names, images = containers_and_images(template_spec(obj))
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [name_of(obj), *counts, age(created(obj), now), names, images, selector]
