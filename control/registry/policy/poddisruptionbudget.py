"""PodDisruptionBudgets: the number of pods that must remain during evictions."""

from __future__ import annotations

from control.registry.checks import FieldErrors, at_most_all, int_or_percent, label_selector
from control.registry.rows import Rows
from control.registry.rules import not_negative, require_enum
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, Column, Field, number
from kube.errors import FieldError, invalid_value
from kube.json_object import Object

_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_STATUS = Rows((f"status.{{{','.join(_COUNTS)}}}", not_negative))


def _one_limit(spec: Object, path: str) -> FieldErrors:
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield invalid_value(path, spec, "minAvailable and maxUnavailable cannot be both set")


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
    field_rules = Rows(
        ("spec?", _one_limit),
        ("spec.{minAvailable,maxUnavailable}?", int_or_percent, at_most_all),
        ("spec.unhealthyPodEvictionPolicy?", require_enum("AlwaysAllow", "IfHealthyBudget")),
        ("spec.selector", label_selector),
    )
    allow_unconditional_update = False

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = dict.fromkeys(_COUNTS, 0)

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        return _STATUS.errors(obj)
