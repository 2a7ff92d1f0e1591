"""An expression made ready: parsed, checked against its declarations, its cost estimated, and compiled.

Why not a package: the expressions of Kubernetes are checked against schemas, their cost is estimated before and counted
while they run, and they use syntax (`.?`, two variables) and types that the packages at hand do not have or do not let one
add. One (common-expression-language 0.10) also copies every object into its own values first, 0.4 ms for a hundred list
items, where this takes a few µs. It is kept as a second opinion in the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from control.cel import conversions, functions, kubernetes, libraries, times
from control.cel.checker import Checker, TypeTooLarge
from control.cel.compiler import compiled
from control.cel.errors import BudgetExceeded, CompileError, EvaluationError, Issue
from control.cel.estimate import estimate
from control.cel.frame import Closure, Frame, converted
from control.cel.parser import parse
from control.cel.signatures import STANDARD, Signatures
from control.cel.types import Type
from control.cel.values import shown
from control.event_loop import inline

PER_CALL_LIMIT = 1_000_000
"""Cost limit of one evaluation (apiserver's PerCallLimit)."""
_FUNCTIONS: dict[str, Callable[..., Any]] = (
    functions.FUNCTIONS | conversions.FUNCTIONS | times.FUNCTIONS | libraries.FUNCTIONS | kubernetes.FUNCTIONS
)
COMPILING = 40
"""Units of cost for a character of an expression that is compiled: at most 20 µs."""
UNKNOWN_COST = 1 << 63


class Declarations(msgspec.Struct, frozen=True):
    """Declarations for expressions: variables by type, additional functions, and named object types."""

    variables: Mapping[str, Type]
    signatures: Signatures = msgspec.field(default_factory=dict)
    functions: Mapping[str, Callable[..., Any]] = msgspec.field(default_factory=dict)
    types: Mapping[str, Type] = msgspec.field(default_factory=dict)


class Result(NamedTuple):
    """An evaluation's value and what it cost."""

    value: Any
    cost: int


class Program:
    """A compiled expression."""

    __slots__ = ("_closure", "_conversions", "estimated_cost", "result", "source", "used")

    def __init__(
        self,
        source: str,
        result: Type,
        used: frozenset[str],
        cost: int,
        closure: Closure,
        variables: Mapping[str, Type],
    ) -> None:
        self.source, self.result, self.used = source, result, used
        self.estimated_cost = cost
        """Maximum cost of an evaluation, by the sizes in the declared types."""
        self._closure = closure
        self._conversions = {n: t.convert for n, t in variables.items() if n in used and t.convert is not None}

    def evaluate(self, variables: Mapping[str, Any], budget: int = PER_CALL_LIMIT) -> Result:
        """Return the value for these variables; raises EvaluationError, and BudgetExceeded past `budget`.

        Raises TooMuchHere if the work that this belongs to may cost less than that on the event loop.
        """
        bindings = dict(variables)
        here = inline.left()
        frame = Frame(bindings, budget if here is None else min(budget, here))
        try:
            for name, convert in self._conversions.items():
                if bindings.get(name) is not None:
                    bindings[name] = converted(frame, convert, bindings[name])
            value = self._closure(frame)
            inline.spent(frame.cost)
            if frame.cost > budget:
                raise BudgetExceeded
        except EvaluationError as error:
            inline.spent(frame.cost)
            error.cost = frame.cost
            raise
        except RecursionError:
            raise EvaluationError("expression nests too deep to be evaluated") from None
        except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
            # Whatever a value can provoke in a library must not take the request down.
            raise EvaluationError(f"internal error: {type(error).__name__}: {shown(str(error))}") from error
        return Result(value, frame.cost)


def compile(expression: str, declarations: Declarations) -> Program:
    """Compile an expression; raises CompileError with everything that is wrong with it.

    Raises TooMuchHere if the work that this belongs to may cost less than that on the event loop.
    """
    inline.spent(COMPILING * len(expression))
    signatures = STANDARD
    if declarations.signatures:
        signatures = {**STANDARD}
        for name, forms in declarations.signatures.items():
            signatures[name] = [*STANDARD.get(name, ()), *forms]
    try:
        tree = parse(expression)
        checker = Checker(expression, declarations.variables, signatures, declarations.types)
        result = checker.check(tree)
        closure = compiled(tree, {**_FUNCTIONS, **declarations.functions} if declarations.functions else _FUNCTIONS)
        cost = estimate(tree)
    except RecursionError:
        raise CompileError(expression[:80], [Issue(0, "expression nests too deep")]) from None
    except TypeTooLarge:
        raise CompileError(expression[:80], [Issue(0, "the type of a part of the expression is too large")]) from None
    return Program(expression, result, frozenset(checker.used), cost, closure, declarations.variables)
