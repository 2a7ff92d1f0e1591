"""Match conditions: expressions that decide whether a webhook or a policy applies to a request.

One that is false decides, whatever the others are; else an error of any of them is an error of the whole, which is the
failure policy's affair (apiserver/pkg/admission/plugin/webhook/matchconditions).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from control.cel import CompileError, Declarations, EvaluationError, Program
from control.cel import compile as compile_cel
from control.policy_expressions.declarations import declarations
from kube.bounded_cache import bounded_cache


class Unclear(Exception):
    """A condition could not be evaluated."""


Compiled = Program | CompileError


def prepare(expression: str, declared: Declarations) -> Compiled:
    """Compile an expression; errors of one that is stored nevertheless are reported when it is evaluated."""
    try:
        return compile_cel(expression, declared)
    except CompileError as error:
        return error


@bounded_cache(2048, longest=4096)
def of_webhook(expression: str) -> tuple[str, Compiled]:
    """Return a webhook's condition made ready, once for every webhook that has it."""
    return expression, prepare(expression, declarations())


def met(conditions: Sequence[tuple[str, Compiled]], values: Mapping[str, Any]) -> bool:
    """Return whether all conditions (text and program) hold; raises Unclear."""
    problem = ""
    for text, program in conditions:
        try:
            if isinstance(program, CompileError):
                raise program
            value = program.evaluate(values).value
            if value is False:
                return False
            if value is not True:
                raise EvaluationError("it is no bool")
        except (CompileError, EvaluationError) as error:
            problem = problem or f"expression '{text}' resulted in error: {error}"
    if problem:
        raise Unclear(problem)
    return True
