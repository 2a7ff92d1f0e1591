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

    def spend_on_items(self, count: int) -> None:
        """Spend on the items of a list or map that is within another one, whose charge does not include them.

        Values may share their parts, so that few literals make a value of exponential size. Unlike cel-go's, the cost of
        comparing or printing one therefore includes all levels.
        """
        self.spend(1 + count // 8)


CONVERTED_AT_ONCE = 16
"""Characters of a text that are converted for a unit."""


def converted(frame: Frame, convert: Callable[[Any], Any], value: Any) -> Any:
    """Return the CEL value of a field's JSON value; raises BudgetExceeded. A time costs nothing, a long text its length."""
    if type(value) is str and len(value) > 4 * CONVERTED_AT_ONCE:
        frame.spend(len(value) // CONVERTED_AT_ONCE)
    return convert(value)


Closure = Callable[[Frame], Any]


def true(value: Any) -> bool:
    """Return a bool; raises EvaluationError for anything else."""
    if type(value) is bool:
        return value
    raise no_overload()
