"""DaemonSets: defaults, columns and what may change."""

from __future__ import annotations

from control.registry.apps.workload import (
    not_decremented,
    unsupported_strategy,
    validate_selected_template,
    validate_selector,
)
from control.registry.checks import at_most_all, int_or_percent, non_negative_fields, scaled_zero
from control.registry.core.pod.defaults import default_template
from control.registry.core.pod.warnings import template_warnings
from control.registry.defaults import Defaults, absent
from control.registry.strategy import Strategy
from control.registry.table_cells import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    SELECTOR,
    Column,
    Field,
    labels_text,
)
from kube.errors import FieldError, invalid_value, required
from kube.json_object import Object

_COUNTS = (
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
)


def _validate_update_strategy(strategy: Object, path: str) -> list[FieldError]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind == "OnDelete":
        return []
    if kind != "RollingUpdate":
        return [unsupported_strategy(strategy, path, ("RollingUpdate", "OnDelete"))]
    where = f"{path}.rollingUpdate"
    if rolling is None:
        return [required(where)]
    errors = []
    for key in ("maxUnavailable", "maxSurge"):
        errors += int_or_percent(rolling.get(key), f"{where}.{key}")
        errors += at_most_all(rolling.get(key), f"{where}.{key}")
    away, more = (not scaled_zero(rolling.get(key)) for key in ("maxUnavailable", "maxSurge"))
    if away and more:
        detail = "may not be set when maxUnavailable is non-zero"
        errors.append(invalid_value(f"{where}.maxSurge", rolling.get("maxSurge"), detail))
    elif not away and not more:
        errors.append(required(f"{where}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return errors


_NODE_SELECTOR = Field("spec.template.spec.nodeSelector", show=labels_text)


_ROLLING = Defaults(
    ("rollingUpdate", absent({})),
    ("rollingUpdate.maxUnavailable", absent(1)),
    ("rollingUpdate.maxSurge", absent(0)),
)


class DaemonSetStrategy(Strategy):
    columns = (
        NAME,
        Column("Desired", Field("status.desiredNumberScheduled", 0), "Nodes that should run the pod.", type="integer"),
        Column(
            "Current", Field("status.currentNumberScheduled", 0), "Nodes that run the pod and should.", type="integer"
        ),
        Column("Ready", Field("status.numberReady", 0), "Nodes where the pod is ready.", type="integer"),
        Column(
            "Up-to-date", Field("status.updatedNumberScheduled", 0), "Nodes with the newest template.", type="integer"
        ),
        Column(
            "Available",
            Field("status.numberAvailable", 0),
            "Nodes where the pod has been ready for long enough.",
            type="integer",
        ),
        Column("Node Selector", _NODE_SELECTOR, "Labels that choose the nodes."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    )
    immutable = ("spec.selector",)
    field_defaults = Defaults(
        ("spec.updateStrategy", absent({})),
        ("spec.updateStrategy.type", "RollingUpdate"),
        ("spec.revisionHistoryLimit", absent(10)),
    )

    def default(self, obj: Object) -> None:
        default_template(obj.setdefault("spec", {}))
        super().default(obj)
        if obj["spec"]["updateStrategy"]["type"] == "RollingUpdate":
            _ROLLING(obj["spec"]["updateStrategy"])

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = dict.fromkeys(
            ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"), 0
        )

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = [*validate_selector(spec, "spec", "daemonset"), *validate_selected_template(spec, "spec", "DaemonSet")]
        errors += non_negative_fields(spec, "spec", "minReadySeconds", "revisionHistoryLimit")
        return errors + _validate_update_strategy(spec.get("updateStrategy") or {}, "spec.updateStrategy")

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        status, before = obj.get("status") or {}, old.get("status") or {}
        keys = (*_COUNTS, "numberMisscheduled", "numberUnavailable", "observedGeneration", "collisionCount")
        return non_negative_fields(status, "status", *keys) + not_decremented(status, before)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        return template_warnings(obj, old)
