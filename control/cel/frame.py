"""One evaluation of an expression: its variables, and what it has cost so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from control.cel.errors import BudgetExceeded, no_overload


class Frame:
    """One evaluation."""

    __slots__ = ("cost", "limit", "variables")

    def __init__(self, variables: dict[str, Any], limit: int) -> None:
        self.variables, self.limit, self.cost = variables, limit, 0

    def spend(self, cost: int) -> None:
        self.cost += cost
        if self.cost > self.limit:
            raise BudgetExceeded


Closure = Callable[[Frame], Any]


def true(value: Any) -> bool:
    """Return a bool; raises EvaluationError for anything else."""
    if type(value) is bool:
        return value
    raise no_overload()
