"""PodDisruptionBudgets: how many pods evictions must leave."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, Column, created, name_of
from control.registry.strategy import Object, Strategy
from control.registry.tables import age


class PodDisruptionBudgetStrategy(Strategy):
    columns = (
        NAME,
        Column("Min Available", description="Pods that must stay."),
        Column("Max Unavailable", description="Pods that may be away."),
        Column("Allowed Disruptions", "integer", description="Pods that may be evicted now."),
        AGE,
    )
    allow_unconditional_update = False

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = dict.fromkeys(("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0)

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec = obj.get("spec") or {}
        shown = ["N/A" if spec.get(k) is None else str(spec[k]) for k in ("minAvailable", "maxUnavailable")]
        return [name_of(obj), *shown, (obj.get("status") or {}).get("disruptionsAllowed", 0), age(created(obj), now)]
