"""PodDisruptionBudgets: the number of pods that must remain during evictions."""

from __future__ import annotations

from control.registry.checks import at_most_all, int_or_percent, label_selector, non_negative_fields, one_of
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, Column, Field, number
from kube.errors import FieldError, invalid_value
from kube.json_object import Object

_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


class PodDisruptionBudgetStrategy(Strategy):
    columns = (
        NAME,
        Column("Min Available", number("spec.minAvailable", "N/A"), "Pods that must stay."),
        Column("Max Unavailable", number("spec.maxUnavailable", "N/A"), "Pods that may be away."),
        Column(
            "Allowed Disruptions",
            Field("status.disruptionsAllowed", 0),
            "Pods that may be evicted now.",
            type="integer",
        ),
        AGE,
    )
    allow_unconditional_update = False

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = dict.fromkeys(_COUNTS, 0)

    def validate(self, obj: Object) -> list[FieldError]:
        spec, errors = obj.get("spec") or {}, []
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            errors.append(invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
        for key in ("minAvailable", "maxUnavailable"):
            if spec.get(key) is not None:
                errors += int_or_percent(spec[key], f"spec.{key}") + at_most_all(spec[key], f"spec.{key}")
        policy = spec.get("unhealthyPodEvictionPolicy")
        if policy is not None:
            errors += one_of(policy, ("AlwaysAllow", "IfHealthyBudget"), "spec.unhealthyPodEvictionPolicy")
        return errors + label_selector(spec.get("selector"), "spec.selector")

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        return non_negative_fields(obj.get("status") or {}, "status", *_COUNTS)
