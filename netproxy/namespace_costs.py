"""Costs of the objects (policies, Services) of each namespace. No I/O."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter


class NamespaceCosts:
    """The costs of objects by namespace, sorted, so that the largest is found at once."""

    def __init__(self) -> None:
        self._totals: Counter[str] = Counter()
        self._sorted: dict[str, list[tuple[int, str]]] = {}
        """Costs and keys of a namespace's objects, without those that cost nothing."""

    def change(self, key: str, old: int, new: int) -> None:
        """Change the cost of an object from `old` to `new`."""
        if old == new:
            return
        namespace = key.partition("/")[0]
        costs = self._sorted.setdefault(namespace, [])
        if old:
            del costs[bisect_left(costs, (old, key))]
        if new:
            insort(costs, (new, key))
        self._totals[namespace] += new - old
        if not costs:
            del self._sorted[namespace], self._totals[namespace]

    def total(self, namespace: str) -> int:
        return self._totals[namespace]

    def largest(self, namespace: str) -> str:
        """Return the most costly object of a namespace. KeyError where none costs anything."""
        return self._sorted[namespace][-1][1]
