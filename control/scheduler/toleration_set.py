"""The tolerations of a pod by key, effect and value, so that a taint is looked up and not compared with each of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kube.api import core_v1
from kube.taints import tolerates

FEW = 8
"""So many tolerations are compared one by one."""


class Tolerations:
    """Tolerations of a pod."""

    def __init__(self, tolerations: Sequence[core_v1.Toleration]) -> None:
        self._all = tolerations
        self._few = len(tolerations) <= FEW
        self._exists: set[tuple[str, str]] = set()
        self._equal: set[tuple[str, str, str]] = set()
        self._others: dict[tuple[str, str], list[core_v1.Toleration]] = {}
        self.effects = {toleration.effect or "" for toleration in tolerations}
        for one in () if self._few else tolerations:
            key, effect, operator = one.key or "", one.effect or "", one.operator or "Equal"
            if operator == "Exists":
                self._exists.add((key, effect))
            elif operator == "Equal":
                self._equal.add((key, effect, one.value or ""))
            else:
                self._bound(key, effect, one)

    def _bound(self, key: str, effect: str, one: core_v1.Toleration) -> None:
        """Of all bounds of one kind keep the one that tolerates what the others do."""
        known = self._others.setdefault((key, effect), [])
        for position, other in enumerate(known):
            if other.operator == one.operator:
                if _wider(one, other):
                    known[position] = one
                return
        known.append(one)

    def tolerate(self, taint: core_v1.Taint) -> bool:
        """True if one of the tolerations covers a taint."""
        if self._few:
            return any(tolerates(toleration, taint) for toleration in self._all)
        value = taint.value or ""
        for key in (taint.key, ""):
            for effect in (taint.effect, ""):
                if (key, effect) in self._exists or (key, effect, value) in self._equal:
                    return True
                if any(tolerates(one, taint) for one in self._others.get((key, effect), ())):
                    return True
        return False

    def first_untolerated(self, taints: Iterable[core_v1.Taint], effects: tuple[str, ...]) -> core_v1.Taint | None:
        """Return the first taint with one of the effects that nothing tolerates."""
        return next((taint for taint in taints if taint.effect in effects and not self.tolerate(taint)), None)


def _wider(one: core_v1.Toleration, other: core_v1.Toleration) -> bool:
    """True if the first of two bounds with the same operator tolerates more; what is no number tolerates nothing."""
    new, old = _number(one), _number(other)
    if new is None or old is None:
        return old is None
    return new < old if one.operator == "Gt" else new > old


def _number(toleration: core_v1.Toleration) -> int | None:
    try:
        return int(toleration.value or "")
    except ValueError:
        return None
