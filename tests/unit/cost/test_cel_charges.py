"""CPU time of CEL's functions and macros in relation to what they charge, with the arguments that cost the most.

The limit on the cost of an expression limits its time, on the event loop (control/event_loop/inline.py) and in the thread, only
if no function takes much longer than its charge says. A new function is measured as soon as it has a signature.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from control.cel import Declarations, EvaluationError, Program, compile
from control.cel.loops import LOOPS
from control.cel.signatures import STANDARD, Overload
from control.cel.types import BOOL, DYN, STRING, Type, list_of, map_of
from control.policy_expressions.declarations import declarations
from control.schemas.celtypes import _FORMATS, type_of
from control.schemas.schema import Schema
from tests.support.cost_cases.cel_arguments import PATTERNS, TEXTS, Build, arguments

MOST_SECONDS = 5e-6
"""CPU time of a unit of cost at most: ten times what most units take."""
CALL_SECONDS = 60e-6
"""CPU time of an evaluation besides its units."""
TRIES = 12
SMALL, LARGE, LARGEST = 1 << 11, 1 << 15, 1 << 18
BUDGET = 200_000
_POLICIES = declarations(variables={}, types={})
SIGNATURES = {**STANDARD, **_POLICIES.signatures}
_PATTERNED = ("matches", "find", "findAll")
_FORMS = {"_[_]": "{}[{}]", "_[?_]": "{}[?{}]", "@in": "{} in {}", "!_": "!{}", "-_": "-{}", "_?_:_": "{} ? {} : {}"}


def _measured(program: Program, variables: dict[str, Any]) -> tuple[float, int]:
    """Return the CPU time and the cost of an evaluation."""
    begin = time.thread_time()
    try:
        cost = program.evaluate(variables, BUDGET).cost
    except EvaluationError as error:
        cost = error.cost
    return time.thread_time() - begin, cost


def excess(program: Program, builds: dict[str, Build], size: int) -> str:
    """Return how much longer than its charge an evaluation takes, "" if it does not."""
    worst = ""
    for _ in range(TRIES):
        variables = {name: build(size) for name, build in builds.items()}
        gc.disable()
        try:
            seconds, cost = _measured(program, variables)
        finally:
            gc.enable()
        if seconds <= CALL_SECONDS + cost * MOST_SECONDS:
            return ""
        worst = f"{seconds * 1e6:.0f} µs for {cost} units, size {size}"
        if seconds > 1.0:
            break
    return worst


def _expression(name: str, overload: Overload) -> str:
    names = [f"x{i}" for i in range(len(overload.params))]
    if name in _FORMS:
        return _FORMS[name].format(*names)
    if name.startswith("_"):
        return f"x0 {name.strip('_')} x1"
    return f"x0.{name}({', '.join(names[1:])})" if overload.method else f"{name}({', '.join(names)})"


def _declared(type_: Type) -> Type:
    """Return a parameter's type for a variable: dyn for a type parameter."""
    if type_.kind == "param":
        return DYN
    return Type(type_.kind, tuple(map(_declared, type_.params))) if type_.params else type_


def _choices(name: str, overload: Overload) -> Iterator[dict[str, tuple[str, Build]]]:
    """Return combinations of arguments by variable: all of two, and for further parameters each with some of the others."""
    columns = []
    for index, type_ in enumerate(overload.params):
        found = PATTERNS if name in _PATTERNED and index == 1 else arguments(type_)
        columns.append(list(found.items()))
    if name in _PATTERNED:  # to compile some takes long
        columns[0], columns[2:] = columns[0][:6], [column[:2] for column in columns[2:]]
    if len(columns) == 2 and len(columns[0]) * len(columns[1]) > 1000:
        yield from ({"x0": a, "x1": b} for a, b in zip(*columns, strict=False))
        yield from ({"x0": a, "x1": b} for a, b in itertools.product(columns[0], columns[1][:4]))
        return
    if len(columns) > 2:
        columns[2:] = [column[:6] for column in columns[2:]]
    for chosen in itertools.product(*columns):
        yield {f"x{i}": each for i, each in enumerate(chosen)}


def _failures(name: str, overload: Overload) -> Iterator[str]:
    variables = {f"x{i}": _declared(type_) for i, type_ in enumerate(overload.params)}
    expression = _expression(name, overload)
    program = compile(expression, Declarations(variables, _POLICIES.signatures, _POLICIES.functions))
    for chosen in _choices(name, overload):
        builds = {variable: build for variable, (_, build) in chosen.items()}
        alike = len({label for label, _ in chosen.values()}) == 1
        for size in (SMALL, LARGEST if alike else LARGE):
            if problem := excess(program, builds, size):
                yield f"{expression} with {', '.join(label for label, _ in chosen.values())}: {problem}"
                break


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_no_function_takes_longer_than_its_charge(name: str) -> None:
    failures = [text for overload in SIGNATURES[name] for text in _failures(name, overload)]
    assert not failures, "\n".join(failures[:12])


_MACROS = {
    **{name: f"x.{name}(y, true)" for name in ("all", "exists_one", "filter", "map")},
    "exists": "x.exists(y, false)",
    "transformList": "x.transformList(i, y, y)",
    "transformMap": "x.transformMap(i, y, y)",
    "transformMapEntry": "x.transformMapEntry(i, y, {y: y})",
}
_OTHERS = {
    "map of two": "x.map(y, true, y)",
    "bind": "cel.bind(y, x, y) == x",
    "optMap": "optional.of(x).optMap(y, y)",
    "optFlatMap": "optional.of(x).optFlatMap(y, optional.of(y))",
    "list": "[x, x]",
    "map literal": "{s: 1, s + 'a': 2}",
    "has": "has(m.a)",
    "select": "m.a",
}
_COLLECTIONS: dict[str, Build] = {
    "many texts": lambda n: [f"{i}" for i in range(n // 8)],
    "large texts": lambda n: [str(i) + "a" * n for i in range(8)],
}


def test_all_macros_are_measured() -> None:
    assert set(_MACROS) == set(LOOPS)


@pytest.mark.parametrize("name", [*_MACROS, *_OTHERS])
@pytest.mark.parametrize("collection", _COLLECTIONS)
def test_no_macro_takes_longer_than_its_charge(name: str, collection: str) -> None:
    declared = Declarations({"x": list_of(STRING), "s": STRING, "m": map_of(STRING, STRING)})
    program = compile((_MACROS | _OTHERS)[name], declared)
    builds: dict[str, Build] = {
        "x": _COLLECTIONS[collection],
        "s": TEXTS["letters"],
        "m": lambda n: {"a" * n: "b", "a": "b"},
    }
    assert not (excess(program, builds, SMALL) or excess(program, builds, LARGEST))


def _field(build: Build) -> Build:
    return lambda n: {"x": build(n)}


@pytest.mark.parametrize("name", _FORMATS)
def test_no_conversion_of_a_field_takes_longer_than_its_charge(name: str) -> None:
    schema = Schema({"type": "object", "properties": {"x": {"type": "string", "format": name}}})
    type_ = type_of(schema)
    assert type_ is not None
    for expression in ("self.x == self.x", "has(self.x) && type(self.x) == string"):
        program = compile(expression, Declarations({"self": type_}))
        failures = [
            f"{expression} of {label}: {problem}"
            for label, build in TEXTS.items()
            for size in (SMALL, LARGEST)
            if (problem := excess(program, {"self": _field(build)}, size))
        ]
        assert not failures, "\n".join(failures)


def test_a_function_that_charges_too_little_is_found() -> None:
    signatures = {"sorted": [Overload((STRING,), BOOL)]}
    program = compile("sorted(x)", Declarations({"x": STRING}, signatures, {"sorted": lambda a: sorted(a) == [a]}))
    assert excess(program, {"x": TEXTS["letters"]}, LARGEST)
