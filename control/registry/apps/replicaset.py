"""ReplicaSets: defaults, columns and what may change."""

from __future__ import annotations

from collections.abc import Sequence

from control.registry.apps.workload import validate_counts, validate_selected_template, validate_selector
from control.registry.checks import non_negative_fields
from control.registry.core.pod.defaults import default_template
from control.registry.core.pod.warnings import pod_name_warnings, template_warnings
from control.registry.defaults import Defaults, absent
from control.registry.rows import Rows
from control.registry.rules import not_negative
from control.registry.strategy import Strategy
from control.registry.table_cells import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    SELECTOR,
    Column,
    Field,
)
from kube.errors import FieldError
from kube.json_object import Object

_COUNTS = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
_STATUS = Rows((f"status.{{replicas,{','.join(_COUNTS)},observedGeneration}}", not_negative))


class ReplicasStrategy(Strategy):
    """Base of ReplicaSets and ReplicationControllers."""

    columns: Sequence[Column] = (
        NAME,
        Column("Desired", Field("spec.replicas", 0), "Pods that are wanted.", type="integer"),
        Column("Current", Field("status.replicas", 0), "Pods that are there.", type="integer"),
        Column("Ready", Field("status.readyReplicas", 0), "Pods that are ready.", type="integer"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    )

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"replicas": 0}

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        status = obj.get("status") or {}
        return [*_STATUS.errors(obj), *validate_counts(status, *_COUNTS)]

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        return ([] if old else pod_name_warnings(obj)) + template_warnings(obj, old)

    def fields(self, obj: Object) -> dict[str, str]:
        return {"status.replicas": str((obj.get("status") or {}).get("replicas", 0))}


class ReplicaSetStrategy(ReplicasStrategy):
    immutable = ("spec.selector",)
    field_defaults = Defaults(("spec.replicas", absent(1)))

    def default(self, obj: Object) -> None:
        default_template(obj.setdefault("spec", {}))
        super().default(obj)

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = non_negative_fields(spec, "spec", "replicas", "minReadySeconds")
        return [*errors, *validate_selector(spec, "spec", "deployment"), *validate_selected_template(spec, "spec")]
