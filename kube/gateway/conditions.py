"""Conditions of statuses, merged with those that are stored: other controllers' stay, and times change with the status."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kube.api import meta_v1
from kube.gateway.verdict import Verdict

MOST = 8
"""Conditions that the API allows of one object."""
OWN = frozenset(
    {
        "Accepted",
        "Conflicted",
        "OverlappingTLSConfig",
        "PartiallyInvalid",
        "Programmed",
        "ResolvedRefs",
        "SupportedVersion",
    }
)
"""Types of conditions that this controller sets."""


def condition(type_: str, verdict: Verdict, generation: int | None, now: str) -> meta_v1.Condition:
    """Return a condition that became what it is now."""
    return meta_v1.Condition(
        type=type_,
        status="True" if verdict.ok else "False",
        reason=verdict.reason,
        message=verdict.message,
        observed_generation=generation,
        last_transition_time=now,
    )


def body(found: meta_v1.Condition) -> dict[str, Any]:
    """Return a condition as JSON: the API demands all fields, also empty ones."""
    return {
        "type": found.type,
        "status": found.status,
        "reason": found.reason,
        "message": found.message,
        "observedGeneration": found.observed_generation or 0,
        "lastTransitionTime": found.last_transition_time,
    }


def merged(current: Sequence[meta_v1.Condition], wanted: Iterable[meta_v1.Condition]) -> list[meta_v1.Condition]:
    """Return the wanted conditions, with the times of those whose status is the same, and others' conditions after them."""
    known = {each.type: each for each in current}
    found = []
    for each in wanted:
        old = known.get(each.type)
        if old is not None and old.status == each.status and old.last_transition_time:
            each.last_transition_time = old.last_transition_time
        found.append(each)
    foreign = [each for each in current if each.type not in OWN]
    return [*found, *foreign[: max(0, MOST - len(found))]]


def is_stale(current: Iterable[meta_v1.Condition], generation: int | None) -> bool:
    """Return whether conditions are about a newer object than the one that is known."""
    return any(each.type in OWN and (each.observed_generation or 0) > (generation or 0) for each in current)
