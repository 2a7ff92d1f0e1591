"""Match conditions: expressions that say whether a webhook or a policy concerns a request at all.

One that is false decides, whatever the others are; else an error of any of them is an error of the whole, which is the
failure policy's affair (apiserver/pkg/admission/plugin/webhook/matchconditions).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from control.admission.policies.environment import declarations
from control.cel import CompileError, Declarations, EvaluationError, Program
from control.cel import compile as compile_cel

Object = dict[str, Any]


class Unclear(Exception):
    """A condition could not be evaluated."""


@functools.lru_cache(maxsize=2048)
def _compiled(expression: str) -> Program | CompileError:
    try:
        return compile_cel(expression, declarations())
    except CompileError as error:
        return error


def met(conditions: Sequence[Object], values: Mapping[str, Any], declared: Declarations | None = None) -> bool:
    """Tell whether all conditions hold; raises Unclear. `declared` gives policies' conditions more to refer to."""
    problem = ""
    for condition in conditions:
        text = condition.get("expression") or ""
        try:
            found = _compiled(text) if declared is None else compile_cel(text, declared)
            if isinstance(found, CompileError):
                raise found
            value = found.evaluate(values).value
            if value is False:
                return False
            if value is not True:
                raise EvaluationError("it is no bool")
        except (CompileError, EvaluationError) as error:
            problem = problem or f"expression '{text}' resulted in error: {error}"
    if problem:
        raise Unclear(problem)
    return True
