"""Deployments: defaults, columns and what may change."""

from __future__ import annotations

from control.registry.apps.workload import (
    not_decremented,
    unsupported_strategy,
    validate_counts,
    validate_selected_template,
    validate_selector,
)
from control.registry.checks import at_most_all, int_or_percent, non_negative_fields, scaled_zero
from control.registry.core.pod.defaults import default_template
from control.registry.core.pod.warnings import pod_name_warnings, template_warnings
from control.registry.defaults import Defaults, absent
from control.registry.strategy import Strategy
from control.registry.table_cells import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    READY,
    SELECTOR,
    Column,
    Field,
)
from kube.errors import FieldError, forbidden_field, invalid_value, required
from kube.json_object import Object

_STATUS_COUNTS = ("observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas")


def _validate_strategy(strategy: Object, path: str) -> list[FieldError]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    where = f"{path}.rollingUpdate"
    if kind == "Recreate":
        if rolling is None:
            return []
        return [forbidden_field(where, "may not be specified when strategy `type` is 'Recreate'")]
    if kind != "RollingUpdate":
        return [unsupported_strategy(strategy, path, ("Recreate", "RollingUpdate"))]
    if rolling is None:
        return [required(where, "this should be defaulted and never be nil")]
    errors = []
    for key in ("maxUnavailable", "maxSurge"):
        errors += int_or_percent(rolling.get(key), f"{where}.{key}")
    if scaled_zero(rolling.get("maxUnavailable")) and scaled_zero(rolling.get("maxSurge")):
        detail = "may not be 0 when `maxSurge` is 0"
        errors.append(invalid_value(f"{where}.maxUnavailable", rolling.get("maxUnavailable"), detail))
    return errors + at_most_all(rolling.get("maxUnavailable"), f"{where}.maxUnavailable")


_ROLLING = Defaults(("rollingUpdate", absent({})), ("rollingUpdate.{maxUnavailable,maxSurge}", absent("25%")))


class DeploymentStrategy(Strategy):
    status_keeps = ("labels",)
    columns = (
        NAME,
        READY,
        Column("Up-to-date", Field("status.updatedReplicas", 0), "Pods that run the newest template."),
        Column("Available", Field("status.availableReplicas", 0), "Pods that have been ready for long enough."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    )
    immutable = ("spec.selector",)
    field_defaults = Defaults(
        ("spec.strategy", absent({})),
        ("spec.strategy.type", "RollingUpdate"),
        ("spec.replicas", absent(1)),
        ("spec.revisionHistoryLimit", absent(10)),
        ("spec.progressDeadlineSeconds", absent(600)),
    )

    def default(self, obj: Object) -> None:
        default_template(obj.setdefault("spec", {}))
        super().default(obj)
        if obj["spec"]["strategy"]["type"] == "RollingUpdate":
            _ROLLING(obj["spec"]["strategy"])

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = non_negative_fields(spec, "spec", "replicas")
        errors += validate_selector(spec, "spec", "deployment")
        errors += validate_selected_template(spec, "spec")
        errors += _validate_strategy(spec.get("strategy") or {}, "spec.strategy")
        errors += non_negative_fields(
            spec, "spec", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"
        )
        deadline = spec.get("progressDeadlineSeconds")
        if deadline is not None and deadline <= (spec.get("minReadySeconds") or 0):
            errors.append(
                invalid_value("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")
            )
        return errors

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        status = obj.get("status") or {}
        errors = non_negative_fields(status, "status", *_STATUS_COUNTS)
        errors += validate_counts(status, "updatedReplicas", "readyReplicas", "availableReplicas")
        return errors + not_decremented(status, old.get("status") or {})

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        return ([] if old else pod_name_warnings(obj)) + template_warnings(obj, old)
