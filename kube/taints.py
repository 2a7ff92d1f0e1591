"""Taints and tolerations: filters a node's taints that a pod does not tolerate (upstream: component-helpers/scheduling)."""

from __future__ import annotations

from collections.abc import Iterable

from kube.api import core_v1

NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "PreferNoSchedule", "NoExecute"


def tolerates(toleration: core_v1.Toleration, taint: core_v1.Taint) -> bool:
    """True if one toleration covers one taint; an empty key with Exists covers all, an empty effect every effect."""
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


class Tolerations:
    """A pod's tolerations, read once for many taints: the cost of checking one taint does not depend on their number."""

    def __init__(self, tolerations: Iterable[core_v1.Toleration]) -> None:
        self._exact: set[tuple[str, str, str | None]] = set()
        """Key, effect and value; no value where the operator is Exists."""
        self._bounds: dict[tuple[str, str], tuple[int | None, int | None]] = {}
        """Exclusive lower and upper limit of a numeric value, by key and effect (operators Gt and Lt)."""
        for toleration in tolerations:
            self._add(toleration.key or "", toleration.effect or "", toleration)

    def _add(self, key: str, effect: str, toleration: core_v1.Toleration) -> None:
        operator, value = toleration.operator or "Equal", toleration.value or ""
        if operator in ("Exists", "Equal"):
            self._exact.add((key, effect, None if operator == "Exists" else value))
        elif operator in ("Gt", "Lt") and (bound := _number(value)) is not None:
            above, below = self._bounds.get((key, effect), (None, None))
            if operator == "Gt":
                above = bound if above is None else min(above, bound)
            else:
                below = bound if below is None else max(below, bound)
            self._bounds[key, effect] = above, below

    def cover(self, taint: core_v1.Taint) -> bool:
        """True if one of them tolerates a taint."""
        value = taint.value or ""
        for key in {taint.key, ""}:
            for effect in {taint.effect, ""}:
                if (key, effect, None) in self._exact or (key, effect, value) in self._exact:
                    return True
                above, below = self._bounds.get((key, effect), (None, None))
                if (above is not None or below is not None) and (number := _number(value)) is not None:
                    if (above is not None and number > above) or (below is not None and number < below):
                        return True
        return False


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def first_untolerated(
    taints: Iterable[core_v1.Taint], tolerations: list[core_v1.Toleration], effects: tuple[str, ...]
) -> core_v1.Taint | None:
    """Return the first taint with one of the effects that nothing tolerates."""
    for taint in taints:
        if taint.effect in effects and not tolerated(taint, tolerations):
            return taint
    return None
