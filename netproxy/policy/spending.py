"""What the policies of each namespace cost together. No I/O."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter


class Spending:
    """The costs of policies by namespace, the largest known without a look at the others."""

    def __init__(self) -> None:
        self._totals: Counter[str] = Counter()
        self._sorted: dict[str, list[tuple[int, str]]] = {}
        """Costs and keys of a namespace's policies, those that cost nothing left out."""

    def change(self, key: str, old: int, new: int) -> None:
        """Take in that a policy costs something else."""
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
        """Return the policy that costs most of a namespace with any."""
        return self._sorted[namespace][-1][1]
