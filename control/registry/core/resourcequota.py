"""ResourceQuotas: how much a namespace may use together."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, Column, created, name_of
from control.registry.strategy import Object, Strategy
from control.registry.tables import age
from kube.quantity import canonical


class ResourceQuotaStrategy(Strategy):
    columns = (
        NAME,
        Column("Request", description="What is used of what may be asked for."),
        Column("Limit", description="What is used of what limits may come to."),
        AGE,
    )
    has_generation = False

    def row(self, obj: Object, now: datetime) -> list[Any]:
        status = obj.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        shown: dict[bool, list[str]] = {True: [], False: []}
        for name in sorted(hard):
            text = f"{name}: {canonical(used.get(name, 0))}/{canonical(hard[name])}"
            shown[name.startswith("limits.")].append(text)
        return [name_of(obj), ", ".join(shown[False]), ", ".join(shown[True]), age(created(obj), now)]
