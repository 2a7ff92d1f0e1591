"""Checks of how much a priority level may take and lend, and of its queues."""

from __future__ import annotations

import math

from control.registry.checks import Errors, one_of
from kube.errors import forbidden_field, invalid_value, required
from kube.json_object import Object

_MOST_QUEUES, _MOST_BITS = 10_000_000, 60


def validate_limits(spec: Object, path: str) -> Errors:
    """Check the limited or exempt part of a PriorityLevelConfiguration's spec."""
    errors: Errors = []
    for part in ("limited", "exempt"):
        if spec.get(part) is not None:
            errors += _shares(spec[part], f"{path}.{part}")
    if spec.get("type") != "Limited" or spec.get("limited") is None:
        return errors
    response, where = spec["limited"].get("limitResponse") or {}, f"{path}.limited.limitResponse"
    kind, queuing = response.get("type"), response.get("queuing")
    errors += one_of(kind, ("Queue", "Reject"), f"{where}.type")
    if kind == "Reject" and queuing is not None:
        detail = "must be nil if limited.limitResponse.type is not Limited"
        errors.append(forbidden_field(f"{where}.queuing", detail))
    elif kind == "Queue":
        if queuing is None:
            errors.append(required(f"{where}.queuing", "must not be empty if limited.limitResponse.type is Limited"))
        else:
            errors += _queues(queuing, f"{where}.queuing")
    return errors


def _shares(part: Object, path: str) -> Errors:
    errors: Errors = []
    shares, lendable, borrowing = (
        part.get(k) for k in ("nominalConcurrencyShares", "lendablePercent", "borrowingLimitPercent")
    )
    if shares is not None and shares < 0:
        errors.append(invalid_value(f"{path}.nominalConcurrencyShares", shares, "must be a non-negative integer"))
    if lendable is not None and not 0 <= lendable <= 100:
        errors.append(invalid_value(f"{path}.lendablePercent", lendable, "must be between 0 and 100, inclusive"))
    if borrowing is not None and borrowing < 0:
        detail = "if specified, must be a non-negative integer"
        errors.append(invalid_value(f"{path}.borrowingLimitPercent", borrowing, detail))
    return errors


def _queues(queuing: Object, path: str) -> Errors:
    errors: Errors = []
    queues, hand = queuing.get("queues", 0), queuing.get("handSize", 0)
    for key in ("queueLengthLimit", "queues"):
        if queuing.get(key, 0) <= 0:
            errors.append(invalid_value(f"{path}.{key}", queuing.get(key, 0), "must be positive"))
    if queues > _MOST_QUEUES:
        errors.append(invalid_value(f"{path}.queues", queues, f"must not be greater than {_MOST_QUEUES}"))
    if hand <= 0:
        errors.append(invalid_value(f"{path}.handSize", hand, "must be positive"))
    elif hand > queues:
        errors.append(invalid_value(f"{path}.handSize", hand, f"should not be greater than queues ({queues})"))
    elif math.ceil(sum(math.log2(queues - i) for i in range(hand))) > _MOST_BITS:
        detail = (
            f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {_MOST_BITS}"
        )
        errors.append(invalid_value(f"{path}.handSize", hand, detail))
    return errors
