"""The macros that go through lists and maps, as closures: all, exists, exists_one, filter, map and the transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from control.cel.errors import BudgetExceeded, EvaluationError, no_overload
from control.cel.frame import Closure, Frame, converted, true
from control.cel.syntax import Loop, Node, free_nodes
from control.cel.values import shown

Visit = Callable[[Node], Closure]
FREE_NODES = 8
"""Nodes of a loop's body for which cel-go charges nothing; so many cost 1 in each round."""


def _each(visit: Visit, node: Loop) -> Callable[[Frame], Iterator[None]]:
    """Return what steps through a loop's range with its variables set."""
    over, names = visit(node.over), node.variables
    kind, params = node.over.type.kind, node.over.type.params
    convert = params[-1].convert if params and kind in ("list", "map") else None
    only = names[0] if len(names) == 1 else ""
    round_cost = 3 + free_nodes(node.condition, node.body) // FREE_NODES

    def steps(frame: Frame) -> Iterator[None]:
        collection = over(frame)
        variables = frame.variables
        saved = [(name, variables[name]) for name in names if name in variables]
        if type(collection) is dict:
            pairs = ((key, key) for key in collection) if only else iter(collection.items())
        elif type(collection) is list:
            pairs = enumerate(collection)
        else:
            raise no_overload()
        change = convert if convert is not None and not (only and type(collection) is dict) else None
        try:
            for first, second in pairs:
                frame.cost += round_cost
                if frame.cost > frame.limit:
                    raise BudgetExceeded
                if change is not None and second is not None:
                    second = converted(frame, change, second)
                if only:
                    variables[only] = second
                else:
                    variables[names[0]], variables[names[1]] = first, second
                yield
        finally:
            for name in names:
                variables.pop(name, None)
            variables.update(saved)

    return steps


def _quantifier(*, whole: bool) -> Callable[[Visit, Loop], Closure]:
    """all (`whole`) and exists: the first item that decides ends it, errors count only if none does."""

    def make(visit: Visit, node: Loop) -> Closure:
        steps, body = _each(visit, node), visit(node.body)

        def closure(frame: Frame) -> Any:
            failure: EvaluationError | None = None
            walk = steps(frame)
            try:
                for _ in walk:
                    try:
                        found = body(frame)
                    except BudgetExceeded:
                        raise
                    except EvaluationError as error:
                        failure = failure or error
                        continue
                    if found is (not whole):
                        return found
                    if found is not whole:
                        failure = failure or no_overload()
            finally:
                walk.close()  # type: ignore[attr-defined]
            if failure is not None:
                raise failure
            return whole

        return closure

    return make


def _exists_one(visit: Visit, node: Loop) -> Closure:
    steps, body = _each(visit, node), visit(node.body)

    def closure(frame: Frame) -> Any:
        count = 0
        for _ in steps(frame):
            count += true(body(frame))
        return count == 1

    return closure


def _filter(visit: Visit, node: Loop) -> Closure:
    steps, body, name = _each(visit, node), visit(node.body), node.variables[0]

    def closure(frame: Frame) -> Any:
        found = []
        frame.cost += 10
        for _ in steps(frame):
            if true(body(frame)):
                frame.cost += 10
                found.append(frame.variables[name])
        return found

    return closure


def _mapped(visit: Visit, node: Loop) -> Closure:
    steps, body = _each(visit, node), visit(node.body)
    condition = visit(node.condition) if node.condition is not None else None

    def closure(frame: Frame) -> Any:
        found = []
        frame.cost += 10
        for _ in steps(frame):
            if condition is None or true(condition(frame)):
                frame.cost += 10
                found.append(body(frame))
        return found

    return closure


def _transformed(visit: Visit, node: Loop) -> Closure:
    steps, body, entry = _each(visit, node), visit(node.body), node.macro == "transformMapEntry"
    condition = visit(node.condition) if node.condition is not None else None
    key = node.variables[0]

    def closure(frame: Frame) -> Any:
        found: dict[Any, Any] = {}
        frame.cost += 30
        for _ in steps(frame):
            if condition is not None and not true(condition(frame)):
                continue
            frame.cost += 10
            value = body(frame)
            new = value if entry else {frame.variables[key]: value}
            if type(new) is not dict:
                raise no_overload()
            for name in new:
                if name in found:
                    raise EvaluationError(f"insert failed: key {shown(name)} already exists")
            found.update(new)
        return found

    return closure


LOOPS: dict[str, Callable[[Visit, Loop], Closure]] = {
    "all": _quantifier(whole=True),
    "exists": _quantifier(whole=False),
    "exists_one": _exists_one,
    "filter": _filter,
    "map": _mapped,
    "transformList": _mapped,
    "transformMap": _transformed,
    "transformMapEntry": _transformed,
}
