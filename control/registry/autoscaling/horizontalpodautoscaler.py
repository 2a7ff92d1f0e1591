"""HorizontalPodAutoscalers, as autoscaling/v2 has them; v1 is served as a view of that."""

from __future__ import annotations

from control.registry.autoscaling.validation import validate_autoscaler, validate_autoscaler_status
from control.registry.defaults import Defaults, absent
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, NONE, UNSET, Column, Field, number, reference
from kube.errors import FieldError
from kube.json_object import Object
from kube.quantity import canonical

SHOWN = 2
_PERCENT = {"type": "Percent", "value": 100, "periodSeconds": 15}
_BEHAVIOR = Defaults(
    ("{scaleUp,scaleDown}", absent({})),
    ("scaleUp.stabilizationWindowSeconds", absent(0)),
    ("{scaleUp,scaleDown}.selectPolicy", absent("Max")),
    # A list that is empty was meant, and is refused.
    ("scaleUp.policies", absent([{"type": "Pods", "value": 4, "periodSeconds": 15}, _PERCENT])),
    ("scaleDown.policies", absent([_PERCENT])),
)


def _targets(autoscaler: Object) -> str:
    spec, status = autoscaler.get("spec") or {}, autoscaler.get("status") or {}
    if "targetCPUUtilizationPercentage" in spec:
        current = status.get("currentCPUUtilizationPercentage")
        shown = "<unknown>" if current is None else f"{current}%"
        return f"cpu: {shown}/{spec['targetCPUUtilizationPercentage']}%"
    metrics, current_metrics = spec.get("metrics") or [], status.get("currentMetrics") or []
    if not metrics:
        return NONE
    texts = []
    for index, metric in enumerate(metrics):
        now = current_metrics[index] if index < len(current_metrics) else {}
        texts.append(_metric(metric, now))
    shown = ", ".join(texts[:SHOWN])
    return f"{shown} + {len(texts) - SHOWN} more..." if len(texts) > SHOWN else shown


def _metric(metric: Object, now: Object) -> str:
    kind = metric.get("type", "")
    key = kind[:1].lower() + kind[1:]
    source = metric.get(key)
    if source is None:
        return "<unknown type>"
    target, current = source.get("target") or {}, (now.get(key) or {}).get("current") or {}
    if kind in ("Resource", "ContainerResource"):
        if target.get("averageValue") is not None:
            return f"{source.get('name', '')}: {_quantity(current, 'averageValue')}/{canonical(target['averageValue'])}"
        measured, wanted = current.get("averageUtilization"), target.get("averageUtilization")
        shown = "<unknown>" if measured is None else f"{measured}%"
        return f"{source.get('name', '')}: {shown}/{'<auto>' if wanted is None else f'{wanted}%'}"
    if kind == "Pods":
        return f"{_quantity(current, 'averageValue')}/{canonical(target.get('averageValue', 0))}"
    if target.get("averageValue") is not None:
        return f"{_quantity(current, 'averageValue')}/{canonical(target['averageValue'])} (avg)"
    return f"{_quantity(current, 'value')}/{canonical(target.get('value', 0))}"


def _quantity(current: Object, key: str) -> str:
    return canonical(current[key]) if current.get(key) is not None else "<unknown>"


_UTILIZATION = {"type": "Utilization", "averageUtilization": 80}
_METRICS = Defaults(
    ("spec.metrics", [{"type": "Resource", "resource": {"name": "cpu", "target": _UTILIZATION}}]),
    ("spec.behavior", _BEHAVIOR),
)


class HorizontalPodAutoscalerStrategy(Strategy):
    columns = (
        NAME,
        Column("Reference", Field("spec.scaleTargetRef", show=reference), "What is scaled."),
        Column("Targets", Field("", show=_targets), "Measured and wanted values."),
        Column("MinPods", number("spec.minReplicas", UNSET)),
        Column("MaxPods", Field("spec.maxReplicas", 0)),
        Column("Replicas", Field("status.currentReplicas", 0)),
        AGE,
    )
    has_generation = False
    field_defaults = Defaults(
        ("spec", absent({})),
        ("spec.minReplicas", absent(1)),
    )

    def default(self, obj: Object) -> None:
        super().default(obj)
        if self.resource.version == "v1":
            obj["spec"].setdefault("targetCPUUtilizationPercentage", 80)
            return
        _METRICS(obj)

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"desiredReplicas": 0}

    def validate(self, obj: Object) -> list[FieldError]:
        return list(validate_autoscaler(obj.get("spec") or {}, "spec"))

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return list(validate_autoscaler(obj.get("spec") or {}, "spec", old.get("spec") or {}))

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        return validate_autoscaler_status(obj)
