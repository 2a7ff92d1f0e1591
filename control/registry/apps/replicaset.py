"""ReplicaSets: defaults, columns and what may change."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.apps.workload import validate_counts, validate_selected_template, validate_selector
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
from control.registry.checks import unchanged
from control.registry.core.pod_defaults import default_template
from control.registry.core.pod_warnings import name_warnings, template_warnings
from control.registry.defaults import default_absent
from control.registry.strategy import Object, Strategy
from control.registry.tables import age
from kube.errors import FieldError, invalid_value

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


class ReplicasStrategy(Strategy):
    """Base of ReplicaSets and ReplicationControllers."""

    columns = REPLICA_COLUMNS

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"replicas": 0}

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        return validate_replica_status(obj.get("status") or {})

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        template, was = (((o or {}).get("spec") or {}).get("template") for o in (obj, old))
        name = (obj.get("metadata") or {}).get("name") or ""
        found = [] if old else name_warnings(name, "Pod names and hostnames")
        return found + template_warnings(template, was, "spec.template")

    def fields(self, obj: Object) -> dict[str, str]:
        return {"status.replicas": str((obj.get("status") or {}).get("replicas", 0))}


class ReplicaSetStrategy(ReplicasStrategy):
    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        default_template(spec)
        default_absent(spec, replicas=1)

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = validate_counts(spec, "spec", "replicas", "minReadySeconds")
        return errors + validate_selector(spec, "spec", "deployment") + validate_selected_template(spec, "spec")

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return self.validate(obj) + unchanged(obj.get("spec") or {}, old.get("spec") or {}, "selector", "spec.selector")

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec = obj.get("spec") or {}
        return replica_row(obj, now, selector_text(spec.get("selector")))


def validate_replica_status(status: Object) -> list[FieldError]:
    """Check the counts of a ReplicaSet's or ReplicationController's status."""
    keys = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
    errors = validate_counts(status, "status", "replicas", *keys, "observedGeneration")
    total = status.get("replicas", 0)
    for key in keys:
        if status.get(key, 0) > total:
            errors.append(invalid_value(f"status.{key}", status.get(key, 0), "cannot be greater than status.replicas"))
    if status.get("availableReplicas", 0) > status.get("readyReplicas", 0):
        detail = "cannot be greater than readyReplicas"
        errors.append(invalid_value("status.availableReplicas", status.get("availableReplicas", 0), detail))
    return errors


def replica_row(obj: Object, now: datetime, selector: str) -> list[Any]:
    """Return the cells of a ReplicaSet or ReplicationController."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    names, images = containers_and_images(template_spec(obj))
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [name_of(obj), *counts, age(created(obj), now), names, images, selector]
