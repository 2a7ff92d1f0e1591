"""FlowSchemas and PriorityLevelConfigurations: classification and queueing of requests under load."""

from __future__ import annotations

from control.registry.checks import Errors, one_of
from control.registry.defaults import Defaults, absent
from control.registry.flowcontrol.limits import LIMITS
from control.registry.flowcontrol.rules import RULE
from control.registry.naming import path_segment
from control.registry.rows import Rows
from control.registry.rules import maximum, minimum, require_enum, require_name
from control.registry.strategy import OBJECT_META, Strategy
from control.registry.table_cells import AGE, NAME, NONE, Column, Field, name_of
from kube import names
from kube.errors import FieldError, forbidden_field, invalid_value, required
from kube.json_object import Object


def _method(method: Object | None) -> str:
    return method.get("type", "") if method else NONE


def _dangling(conditions: list[Object] | None) -> str:
    return next((c.get("status", "") for c in conditions or () if c.get("type") == "Dangling"), "?")


def _highest_precedence(obj: Object, path: str) -> Errors:
    if (obj.get("spec") or {}).get("matchingPrecedence") != 1 or name_of(obj) == "exempt":
        return []
    return [invalid_value("spec.matchingPrecedence", 1, "only the schema named 'exempt' may have matchingPrecedence 1")]


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
    field_rules = Rows(
        ("spec.matchingPrecedence", minimum(1, "must be a positive value")),
        ("spec.matchingPrecedence", maximum(10000, "must not be greater than 10000")),
        ("", _highest_precedence),
        (
            "spec.priorityLevelConfiguration.name",
            require_name(names.dns1123_subdomain, "must reference a priority level"),
        ),
        ("spec.distinguisherMethod?.type", require_enum("ByNamespace", "ByUser")),
        ("spec.rules[*]", RULE),
    )
    field_defaults = Defaults(("spec", absent({})), ("spec.matchingPrecedence", 1000))

    def name_errors(self, name: str, *, prefix: bool = False) -> list[str]:
        return path_segment(name, prefix=prefix)


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
    field_defaults = Defaults(
        ("spec.limited.nominalConcurrencyShares", absent(30)),
        ("spec.limited.lendablePercent", absent(0)),
        ("spec.limited.limitResponse.queuing.handSize", 8),
        ("spec.limited.limitResponse.queuing.queues", 64),
        ("spec.limited.limitResponse.queuing.queueLengthLimit", 50),
        ("spec.exempt.{nominalConcurrencyShares,lendablePercent}", absent(0)),
    )

    def name_errors(self, name: str, *, prefix: bool = False) -> list[str]:
        return path_segment(name, prefix=prefix)

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        if spec.get("type") == "Exempt":
            spec.setdefault("exempt", {})
        super().default(obj)

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        kind, errors = spec.get("type"), []
        if _ROUND_TRIP in ((obj.get("metadata") or {}).get("annotations") or {}):
            errors.append(forbidden_field("metadata.annotations", f"annotation '{_ROUND_TRIP}' is forbidden"))
        if (name_of(obj) == "exempt") != (kind == "Exempt"):
            errors.append(invalid_value("spec.type", kind or "", "must be 'Exempt' if and only if `name` is 'exempt'"))
        errors += one_of(kind, ("Exempt", "Limited"), "spec.type")
        if kind == "Exempt" and spec.get("limited") is not None:
            errors.append(forbidden_field("spec.limited", "must be nil if the type is not Limited"))
        if kind == "Limited":
            if spec.get("exempt") is not None:
                errors.append(forbidden_field("spec.exempt", "must be nil if the type is Limited"))
            if spec.get("limited") is None:
                errors.append(required("spec.limited", "must not be empty when type is Limited"))
        return errors + LIMITS(spec, "spec")
