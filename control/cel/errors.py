"""Errors of expressions: at compilation and at evaluation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing wrong with an expression's text; `offset` counts characters."""

    offset: int
    message: str


class CompileError(Exception):
    """An expression cannot be compiled; the text is in the form of cel-go's issues, each with the line and its place."""

    def __init__(self, source: str, issues: list[Issue]) -> None:
        self.source, self.issues = source, issues
        super().__init__("\n".join(_shown(source, issue) for issue in sorted(issues, key=lambda i: i.offset)))


def _shown(source: str, issue: Issue) -> str:
    before = source[: issue.offset]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1)
    text = source.split("\n")[line - 1].replace("\t", " ")
    return f"ERROR: <input>:{line}:{column + 1}: {issue.message}\n | {text}\n | {'.' * column}^"


class EvaluationError(Exception):
    """An evaluation failed: no such key, division by zero, no such overload ... in cel-go's words.

    `cost` is set by `Program.evaluate`: what was spent until then.
    """

    cost = 0


class BudgetExceeded(EvaluationError):
    """An evaluation cost more than it may."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


def no_overload(*_: object) -> EvaluationError:
    return EvaluationError("no such overload")
