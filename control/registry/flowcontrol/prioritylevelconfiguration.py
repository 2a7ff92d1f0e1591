"""PriorityLevelConfigurations: shares, lending and borrowing limits, and queues of requests under load."""

from __future__ import annotations

import math

from control.registry.checks import Errors, one_of
from control.registry.defaults import Defaults, absent
from control.registry.naming import path_segment
from control.registry.rows import Rows
from control.registry.rules import between, maximum, minimum, require_enum
from control.registry.strategy import OBJECT_META, Strategy
from control.registry.table_cells import AGE, NAME, NONE, Column, Field, name_of
from kube.errors import FieldError, forbidden_field, invalid_value, required
from kube.json_object import Object

_MOST_QUEUES, _MOST_BITS = 10_000_000, 60

_SHARES = Rows(
    ("nominalConcurrencyShares", minimum(0, "must be a non-negative integer")),
    ("lendablePercent", between(0, 100)),
    ("borrowingLimitPercent", minimum(0, "if specified, must be a non-negative integer")),
)


def _hand_size(queuing: Object, path: str) -> Errors:
    """Check how many queues a flow is spread over, of how many."""
    queues, hand, where = queuing.get("queues", 0), queuing.get("handSize", 0), f"{path}.handSize"
    if hand <= 0:
        return [invalid_value(where, hand, "must be positive")]
    if hand > queues:
        return [invalid_value(where, hand, f"should not be greater than queues ({queues})")]
    if math.ceil(math.log2(queues) * hand) > _MOST_BITS:
        detail = (
            f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {_MOST_BITS}"
        )
        return [invalid_value(where, hand, detail)]
    return []


_QUEUES = Rows(
    ("queueLengthLimit", minimum(1, "must be positive")),
    ("queues", minimum(1, "must be positive"), maximum(_MOST_QUEUES, f"must not be greater than {_MOST_QUEUES}")),
    ("", _hand_size),
)


def _queuing(response: Object, path: str) -> Errors:
    kind, queuing, where = response.get("type"), response.get("queuing"), f"{path}.queuing"
    if kind == "Reject" and queuing is not None:
        return [forbidden_field(where, "must be nil if limited.limitResponse.type is not Limited")]
    if kind == "Queue" and queuing is None:
        return [required(where, "must not be empty if limited.limitResponse.type is Limited")]
    return _QUEUES(queuing, where) if kind == "Queue" else []


_RESPONSE = Rows(("type", require_enum("Queue", "Reject")), ("", _queuing))


def _response(spec: Object, path: str) -> Errors:
    """Check what a limited level does with requests above its limit."""
    if spec.get("type") != "Limited" or spec.get("limited") is None:
        return []
    return _RESPONSE(spec["limited"].get("limitResponse"), f"{path}.limited.limitResponse")


LIMITS = Rows(("limited?", _SHARES), ("exempt?", _SHARES), ("", _response))
"""Rules of the limited or exempt part of a PriorityLevelConfiguration's spec."""


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
    name_rule = staticmethod(path_segment)

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
