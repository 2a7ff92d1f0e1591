"""ReplicationControllers, the elders of ReplicaSets: the selector is a plain map and follows the template's labels."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.apps.replicaset import REPLICA_COLUMNS, replica_row, validate_replica_status
from control.registry.apps.workload import validate_counts, validate_selected_template
from control.registry.cells import labels_text
from control.registry.core.pod_defaults import default_template
from control.registry.core.pod_warnings import name_warnings, template_warnings
from control.registry.strategy import Object, Strategy
from kube.errors import FieldError, required


class ReplicationControllerStrategy(Strategy):
    columns = REPLICA_COLUMNS

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        default_template(spec)
        labels = (spec["template"].get("metadata") or {}).get("labels")
        if labels:
            if not spec.get("selector"):
                spec["selector"] = dict(labels)
            if not obj.setdefault("metadata", {}).get("labels"):
                obj["metadata"]["labels"] = dict(labels)
        if spec.get("replicas") is None:
            spec["replicas"] = 1

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"replicas": 0}

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = validate_counts(spec, "spec", "minReadySeconds", "replicas")
        selector = spec.get("selector") or {}
        if not selector:
            errors.append(required("spec.selector"))
        # A plain map is a label selector without expressions.
        shaped = {**spec, "selector": {"matchLabels": selector}}
        return errors + validate_selected_template(shaped, "spec", "ReplicationController")

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        return validate_replica_status(obj.get("status") or {})

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        template, was = (((o or {}).get("spec") or {}).get("template") for o in (obj, old))
        name = (obj.get("metadata") or {}).get("name") or ""
        found = [] if old else name_warnings(name, "Pod names and hostnames")
        return found + template_warnings(template, was, "spec.template")

    def fields(self, obj: Object) -> dict[str, str]:
        return {"status.replicas": str((obj.get("status") or {}).get("replicas", 0))}

    def row(self, obj: Object, now: datetime) -> list[Any]:
        return replica_row(obj, now, labels_text((obj.get("spec") or {}).get("selector")))
