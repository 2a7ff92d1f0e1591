"""ReplicationControllers (core/v1), which share their code with ReplicaSets: the selector is a plain map, by default the
template's labels."""

from __future__ import annotations

from msgspec.structs import replace

from control.registry.apps.replicaset import ReplicasStrategy
from control.registry.apps.workload import validate_selected_template
from control.registry.checks import non_negative_fields
from control.registry.core.pod.defaults import default_template
from control.registry.defaults import Defaults, absent
from control.registry.table_cells import SELECTOR, Field, labels_text
from kube.errors import FieldError, required
from kube.json_object import Object


class ReplicationControllerStrategy(ReplicasStrategy):
    columns = (*ReplicasStrategy.columns[:-1], replace(SELECTOR, cell=Field("spec.selector", show=labels_text)))
    orphans_dependents = True
    field_defaults = Defaults(("spec.replicas", absent(1)))

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        default_template(spec)
        labels = (spec["template"].get("metadata") or {}).get("labels")
        if labels:
            if not spec.get("selector"):
                spec["selector"] = dict(labels)
            if not obj.setdefault("metadata", {}).get("labels"):
                obj["metadata"]["labels"] = dict(labels)
        super().default(obj)

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = non_negative_fields(spec, "spec", "minReadySeconds", "replicas")
        selector = spec.get("selector") or {}
        if not selector:
            errors.append(required("spec.selector"))
        # A plain map is a label selector without expressions.
        shaped = {**spec, "selector": {"matchLabels": selector}}
        return [*errors, *validate_selected_template(shaped, "spec", "ReplicationController")]
