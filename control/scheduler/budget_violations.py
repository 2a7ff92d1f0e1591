"""Pods whose eviction would violate a disruption budget (upstream: filterPodsWithPDBViolation)."""

from __future__ import annotations

from collections.abc import Sequence

from control.scheduler.budgets import Budgets
from control.scheduler.podinfo import PodInfo
from control.scheduler.steps import Steps

FREE_BUDGETS = 64
"""Budgets of one pod that cost as much as a check whether a pod fits."""


class BudgetViolations:
    """Counts the evictions of pods, in order, against the budgets that select them; can be interrupted between pods."""

    def __init__(self, pods: Sequence[PodInfo]) -> None:
        self._pods, self._next = pods, 0
        self._left: dict[tuple[str, str], int] = {}
        self._violating: set[str] = set()

    def count(self, budgets: Budgets, steps: Steps) -> set[str]:
        """Return the keys of the pods; raises OutOfSteps, and what `steps.pause` raises: another call continues then."""
        left = self._left
        while self._next < len(self._pods):
            pod = self._pods[self._next]
            # Upstream: no budget concerns a pod without labels, whatever its selector.
            for number, budget in enumerate(budgets.of(pod, steps) if pod.labels else ()):
                if number % FREE_BUDGETS == FREE_BUDGETS - 1:
                    steps.take()
                if pod.pod.metadata.name in budget.status.disrupted_pods:
                    continue
                key = pod.namespace, budget.metadata.name or ""
                left[key] = left.get(key, budget.status.disruptions_allowed or 0) - 1
                if left[key] < 0:
                    self._violating.add(pod.key)
            self._next += 1
            steps.pause()
        return self._violating
