"""Taints and tolerations: which taints of a node a pod does not tolerate (upstream: component-helpers/scheduling)."""

from __future__ import annotations

from collections.abc import Iterable

from kube.api import core_v1

NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "PreferNoSchedule", "NoExecute"


def tolerates(toleration: core_v1.Toleration, taint: core_v1.Taint) -> bool:
    """True where one toleration covers one taint; an empty key with Exists covers all, an empty effect every effect."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    operator = toleration.operator or "Equal"
    if operator == "Exists":
        return True
    if operator == "Equal":
        return (toleration.value or "") == (taint.value or "")
    try:
        bound, found = int(toleration.value or ""), int(taint.value or "")
    except ValueError:
        return False
    return found > bound if operator == "Gt" else found < bound if operator == "Lt" else False


def tolerated(taint: core_v1.Taint, tolerations: Iterable[core_v1.Toleration]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def first_untolerated(
    taints: Iterable[core_v1.Taint], tolerations: list[core_v1.Toleration], effects: tuple[str, ...]
) -> core_v1.Taint | None:
    """Return the first taint with one of the effects that nothing tolerates."""
    for taint in taints:
        if taint.effect in effects and not tolerated(taint, tolerations):
            return taint
    return None
