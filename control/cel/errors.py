"""Errors of expressions: at compilation and at evaluation."""

from __future__ import annotations

import msgspec


class Issue(msgspec.Struct, frozen=True):
    """One thing wrong with an expression's text; `offset` counts characters."""

    offset: int
    message: str


MOST_ISSUES = 100
"""Most issues of an expression (cel-go's maxErrorsToReport)."""
LONGEST_LINE = 16384
"""Longest line that is shown with an issue (cel-go's maxSnippetLength)."""
LONGEST_TEXT = 64 * 1024
"""Characters of a text after which no further issue is shown: each repeats its line."""


class CompileError(Exception):
    """An expression cannot be compiled; the text is in the form of cel-go's issues, each with the line and its place."""

    def __init__(self, source: str, issues: list[Issue], more: int = 0) -> None:
        """`more`: how many further issues the expression has."""
        self.source, self.issues = source, issues
        super().__init__(_text(source, sorted(issues, key=lambda i: i.offset), more))


def _text(source: str, issues: list[Issue], more: int) -> str:
    shown: list[str] = []
    length = 0
    for issue in issues[:MOST_ISSUES]:
        if length > LONGEST_TEXT:
            break
        shown.append(_shown(source, issue))
        length += len(shown[-1])
    more += len(issues) - len(shown)
    if more:
        shown.append(f"{more} more errors were truncated")
    return "\n".join(shown)


def _shown(source: str, issue: Issue) -> str:
    start = source.rfind("\n", 0, issue.offset) + 1
    line, column = source.count("\n", 0, issue.offset) + 1, issue.offset - start
    text = f"ERROR: <input>:{line}:{column + 1}: {issue.message}"
    end = source.find("\n", issue.offset)
    end = len(source) if end < 0 else end
    if end - start > LONGEST_LINE:
        return text
    return f"{text}\n | {source[start:end].replace(chr(9), ' ')}\n | {'.' * column}^"


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
