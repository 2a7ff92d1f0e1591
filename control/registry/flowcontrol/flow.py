"""FlowSchemas and PriorityLevelConfigurations: who waits for whom when the server is busy."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, NONE, Column, created, name_of
from control.registry.checks import in_range, one_of
from control.registry.naming import path_segment
from control.registry.strategy import Object, Strategy
from control.registry.tables import age
from kube.errors import FieldError, forbidden_field, required


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

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = in_range(spec.get("matchingPrecedence", 0), 1, 10000, "spec.matchingPrecedence")
        if not (spec.get("priorityLevelConfiguration") or {}).get("name"):
            path = "spec.priorityLevelConfiguration.name"
            errors.append(required(path, "must reference a priority level"))
        method = spec.get("distinguisherMethod")
        if method is not None:
            errors += one_of(method.get("type"), ("ByNamespace", "ByUser"), "spec.distinguisherMethod.type")
        for index, rule in enumerate(spec.get("rules") or ()):
            if not rule.get("subjects"):
                errors.append(required(f"spec.rules[{index}].subjects", "subjects must contain at least one value"))
            if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
                detail = "at least one of resourceRules and nonResourceRules has to be non-empty"
                errors.append(required(f"spec.rules[{index}]", detail))
        return errors

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

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        kind, errors = spec.get("type"), []
        errors += one_of(kind, ("Exempt", "Limited"), "spec.type")
        if kind == "Exempt" and spec.get("limited") is not None:
            errors.append(forbidden_field("spec.limited", "must be nil if the type is not Limited"))
        if kind == "Limited":
            if spec.get("exempt") is not None:
                errors.append(forbidden_field("spec.exempt", "must be nil if the type is Limited"))
            if spec.get("limited") is None:
                errors.append(required("spec.limited", "must not be empty when type is Limited"))
        response = (spec.get("limited") or {}).get("limitResponse") or {}
        if kind == "Limited" and spec.get("limited") is not None:
            path = "spec.limited.limitResponse"
            errors += one_of(response.get("type"), ("Queue", "Reject"), f"{path}.type")
            if response.get("type") == "Queue" and response.get("queuing") is None:
                errors.append(required(f"{path}.queuing", "must not be empty if limited.limitResponse.type is Queue"))
        return errors

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
