"""FlowSchemas and PriorityLevelConfigurations: who waits for whom when the server is busy."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, NONE, Column, created, name_of
from control.registry.naming import path_segment
from control.registry.strategy import Object, Strategy
from control.registry.tables import age


class FlowSchemaStrategy(Strategy):
    columns = (
        NAME,
        Column("PriorityLevel"),
        Column("MatchingPrecedence"),
        Column("DistinguisherMethod"),
        AGE,
        Column("MissingPL", description="Whether the priority level does not exist."),
    )

    def name_errors(self, name: str, prefix: bool = False) -> list[str]:
        return path_segment(name, prefix)

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        if not spec.get("matchingPrecedence"):
            spec["matchingPrecedence"] = 1000

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec = obj.get("spec") or {}
        conditions = (obj.get("status") or {}).get("conditions") or ()
        method = spec.get("distinguisherMethod")
        return [
            name_of(obj),
            (spec.get("priorityLevelConfiguration") or {}).get("name") or "",
            spec.get("matchingPrecedence", 0),
            method.get("type", "") if method else NONE,
            age(created(obj), now),
            next((c.get("status", "") for c in conditions if c.get("type") == "Dangling"), "?"),
        ]


class PriorityLevelStrategy(Strategy):
    columns = (
        NAME,
        Column("Type"),
        Column("NominalConcurrencyShares"),
        Column("Queues"),
        Column("HandSize"),
        Column("QueueLengthLimit"),
        AGE,
    )

    def name_errors(self, name: str, prefix: bool = False) -> list[str]:
        return path_segment(name, prefix)

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        limited, exempt = spec.get("limited"), spec.get("exempt")
        if limited is not None:
            for key, value in (("nominalConcurrencyShares", 30), ("lendablePercent", 0)):
                if limited.get(key) is None:
                    limited[key] = value
            queuing = (limited.get("limitResponse") or {}).get("queuing")
            if queuing is not None:
                for key, value in (("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)):
                    if not queuing.get(key):
                        queuing[key] = value
        if spec.get("type") == "Exempt" and exempt is None:
            exempt = spec["exempt"] = {}
        if exempt is not None:
            for key in ("nominalConcurrencyShares", "lendablePercent"):
                if exempt.get(key) is None:
                    exempt[key] = 0

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec = obj.get("spec") or {}
        limited = spec.get("limited")
        shown: list[Any] = [NONE] * 4
        if limited is not None:
            shown[0] = limited.get("nominalConcurrencyShares", 0)
            queuing = (limited.get("limitResponse") or {}).get("queuing")
            if queuing is not None:
                shown[1:] = [queuing.get(k, 0) for k in ("queues", "handSize", "queueLengthLimit")]
        return [name_of(obj), spec.get("type") or "", *shown, age(created(obj), now)]
