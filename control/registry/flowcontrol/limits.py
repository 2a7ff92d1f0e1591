"""Checks of a priority level's shares, lending and borrowing limits, and queues."""

from __future__ import annotations

import math

from control.registry.checks import Errors
from control.registry.rows import Rows
from control.registry.rules import between, maximum, minimum, require_enum
from kube.errors import forbidden_field, invalid_value, required
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
