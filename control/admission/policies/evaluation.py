"""Evaluation of one policy for one request: the variables, the cost limit, and the error of a failed expression."""

from __future__ import annotations

from typing import Any

from control.admission.policies.environment import Lazy
from control.cel import CompileError, EvaluationError, Program
from control.cel.program import PER_CALL_LIMIT
from control.policy_expressions.compiled import Policy, Rule
from control.policy_expressions.conditions import Compiled, met

BUDGET = 10_000_000
"""Cost limit of all expressions of a policy for one request (RuntimeCELCostBudget); each has PER_CALL_LIMIT, too."""
_LONGEST_MESSAGE = 5 * 1024


class Evaluation:
    """A policy and the values for one request and one parameter."""

    def __init__(self, policy: Policy, values: dict[str, Any]) -> None:
        self._policy, self._left = policy, BUDGET
        self._values = values | {"variables": Lazy(policy.variables, self._variable)}

    def concerns(self) -> bool:
        """Return whether the policy's match conditions are met; raises Unclear."""
        return met(self._policy.conditions, self._values)

    def value(self, program: Compiled) -> Any:
        """Evaluate one expression; raises CompileError, EvaluationError."""
        if isinstance(program, CompileError):
            raise program
        if self._policy.broken is not None and "variables" in program.used:
            raise self._policy.broken
        try:
            result = program.evaluate(self._values, min(self._left, PER_CALL_LIMIT))
        except EvaluationError as error:
            self._left -= error.cost
            raise
        self._left -= result.cost
        return result.value

    def _variable(self, program: Program) -> Any:
        return self.value(program)

    def failure(self, rule: Rule) -> str:
        """Return the message of a violated rule."""
        if rule.message is not None:
            try:
                text = self.value(rule.message)
            except (CompileError, EvaluationError):
                text = ""
            text = text.strip() if isinstance(text, str) else ""
            if text and "\n" not in text and len(text) <= _LONGEST_MESSAGE:
                return str(text)
        return (rule.source.get("message") or "").strip() or f"failed expression: {rule.source['expression'].strip()}"
