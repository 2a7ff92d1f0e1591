"""FlowSchemas and PriorityLevelConfigurations: classification and queueing of requests under load."""

from __future__ import annotations

from control.registry.checks import one_of, required_name
from control.registry.defaults import default_absent, default_empty
from control.registry.flowcontrol.limits import validate_limits
from control.registry.flowcontrol.rules import validate_rule
from control.registry.naming import path_segment
from control.registry.strategy import OBJECT_META, Strategy
from control.registry.table_cells import AGE, NAME, NONE, Column, Field, name_of
from kube import names
from kube.errors import FieldError, forbidden_field, invalid_value, required
from kube.json_object import Object


def _method(method: Object | None) -> str:
    return method.get("type", "") if method else NONE


def _dangling(conditions: list[Object] | None) -> str:
    return next((c.get("status", "") for c in conditions or () if c.get("type") == "Dangling"), "?")


class FlowSchemaStrategy(Strategy):
    status_keeps = OBJECT_META
    columns = (
        NAME,
        Column("PriorityLevel", Field("spec.priorityLevelConfiguration.name")),
        Column("MatchingPrecedence", Field("spec.matchingPrecedence", 0)),
        Column("DistinguisherMethod", Field("spec.distinguisherMethod", show=_method)),
        AGE,
        Column("MissingPL", Field("status.conditions", show=_dangling), "Whether the priority level does not exist."),
    )

    def name_errors(self, name: str, *, prefix: bool = False) -> list[str]:
        return path_segment(name, prefix=prefix)

    def default(self, obj: Object) -> None:
        default_empty(obj.setdefault("spec", {}), ("matchingPrecedence", 1000))

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        precedence, path, errors = spec.get("matchingPrecedence", 0), "spec.matchingPrecedence", []
        if precedence <= 0:
            errors.append(invalid_value(path, precedence, "must be a positive value"))
        if precedence > 10000:
            errors.append(invalid_value(path, precedence, "must not be greater than 10000"))
        if precedence == 1 and name_of(obj) != "exempt":
            detail = "only the schema named 'exempt' may have matchingPrecedence 1"
            errors.append(invalid_value(path, precedence, detail))
        level = (spec.get("priorityLevelConfiguration") or {}).get("name")
        path, detail = "spec.priorityLevelConfiguration.name", "must reference a priority level"
        errors += required_name(path, level, names.dns1123_subdomain, detail)
        method = spec.get("distinguisherMethod")
        if method is not None:
            errors += one_of(method.get("type"), ("ByNamespace", "ByUser"), "spec.distinguisherMethod.type")
        for index, rule in enumerate(spec.get("rules") or ()):
            errors += validate_rule(rule, f"spec.rules[{index}]")
        return errors


def _limit(path: str, key: str) -> Field:
    return Field(path, show=lambda found: NONE if found is None else found.get(key, 0))


_ROUND_TRIP = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"


class PriorityLevelStrategy(Strategy):
    status_keeps = OBJECT_META
    columns = (
        NAME,
        Column("Type", Field("spec.type")),
        Column("NominalConcurrencyShares", _limit("spec.limited", "nominalConcurrencyShares")),
        Column("Queues", _limit("spec.limited.limitResponse.queuing", "queues")),
        Column("HandSize", _limit("spec.limited.limitResponse.queuing", "handSize")),
        Column("QueueLengthLimit", _limit("spec.limited.limitResponse.queuing", "queueLengthLimit")),
        AGE,
    )

    def name_errors(self, name: str, *, prefix: bool = False) -> list[str]:
        return path_segment(name, prefix=prefix)

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        if spec.get("type") == "Exempt":
            default_absent(spec, ("exempt", {}))
        default_absent(spec.get("limited"), ("nominalConcurrencyShares", 30), ("lendablePercent", 0))
        queuing = ((spec.get("limited") or {}).get("limitResponse") or {}).get("queuing")
        default_empty(queuing, ("handSize", 8), ("queues", 64), ("queueLengthLimit", 50))
        default_absent(spec.get("exempt"), ("nominalConcurrencyShares", 0), ("lendablePercent", 0))

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        kind, errors = spec.get("type"), []
        if _ROUND_TRIP in ((obj.get("metadata") or {}).get("annotations") or {}):
            errors.append(forbidden_field("metadata.annotations", f"annotation '{_ROUND_TRIP}' is forbidden"))
        if (name_of(obj) == "exempt") != (kind == "Exempt"):
            detail = "must be 'Exempt' if and only if `name` is 'exempt'"
            errors.append(invalid_value("spec.type", kind or "", detail))
        errors += one_of(kind, ("Exempt", "Limited"), "spec.type")
        if kind == "Exempt" and spec.get("limited") is not None:
            errors.append(forbidden_field("spec.limited", "must be nil if the type is not Limited"))
        if kind == "Limited":
            if spec.get("exempt") is not None:
                errors.append(forbidden_field("spec.exempt", "must be nil if the type is Limited"))
            if spec.get("limited") is None:
                errors.append(required("spec.limited", "must not be empty when type is Limited"))
        return errors + validate_limits(spec, "spec")
