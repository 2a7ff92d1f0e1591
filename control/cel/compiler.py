"""Compiles a syntax tree to Python closures, so that repeated evaluations do no work twice.

A closure takes the frame of one evaluation and returns a value; it adds to the frame's cost what cel-go's runtime cost tracker
would, and whatever can repeat looks at the limit. Errors are exceptions, which `&&`, `||` and the loops that
stand for them hold back until they know whether the other side decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from control.cel.charges import CHARGES, Charge
from control.cel.checker import TYPE_NAMES
from control.cel.errors import BudgetExceeded, EvaluationError, no_overload
from control.cel.frame import Closure, Frame, converted, true
from control.cel.functions import WITH_FRAME
from control.cel.loops import LOOPS
from control.cel.syntax import Bind, Call, Ident, Literal, Loop, MakeList, MakeMap, Node, Select
from control.cel.unique import on_unique, unique
from control.cel.values import NONE, Optional, TypeValue, shown

Function = Callable[..., Any]


def compiled(node: Node, functions: Mapping[str, Function]) -> Closure:
    """Return an expression as a closure; the checker has been there before."""
    return _Compiler(functions).visit(node)


class _Compiler:
    def __init__(self, functions: Mapping[str, Function]) -> None:
        self.functions = functions

    def visit(self, node: Node) -> Closure:
        if isinstance(node, Literal):
            value = node.value
            return lambda frame: value
        if isinstance(node, Ident):
            return self._ident(node)
        if isinstance(node, Select):
            return self._select(node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, MakeList):
            return self._list(node)
        if isinstance(node, MakeMap):
            return self._map(node)
        if isinstance(node, Loop):
            return LOOPS[node.macro](self.visit, node)
        assert isinstance(node, Bind)
        return self._bind(node)

    def _ident(self, node: Ident) -> Closure:
        name = node.name
        constant = TypeValue(TYPE_NAMES[name]) if node.type.kind == "type" and name in TYPE_NAMES else None

        def closure(frame: Frame) -> Any:
            frame.cost += 1
            try:
                return frame.variables[name]
            except KeyError:
                if constant is not None:
                    return constant
                raise EvaluationError(f"no such attribute(s): {name}") from None

        return closure

    # -- fields ---------------------------------------------------------------------------------------------------
    def _select(self, node: Select) -> Closure:
        operand = self.visit(node.operand)
        inner = node.operand.type
        if inner.kind == "optional":
            inner = inner.params[0]
        key = node.field
        convert: Callable[[Any], Any] | None = None
        if inner.kind == "object":
            key, found = inner.fields[node.field]
            convert = found.convert
        elif inner.kind == "map":
            convert = inner.params[1].convert
        if node.test:
            return _has(operand, key, of_object=inner.kind == "object")
        if node.optional or node.operand.type.kind in ("optional", "dyn"):
            return _select_any(operand, key, convert, optional=node.optional)

        def closure(frame: Frame) -> Any:
            value = operand(frame)
            frame.cost += 1
            try:
                value = value[key]
            except KeyError:
                raise EvaluationError(f"no such key: {key}") from None
            except TypeError:
                raise no_overload() from None
            return value if convert is None or value is None else converted(frame, convert, value)

        return closure

    # -- calls ----------------------------------------------------------------------------------------------------
    def _call(self, node: Call) -> Closure:
        name = node.function
        special = _SPECIAL.get(name)
        if special is not None:
            return special(*(self.visit(arg) for arg in node.args))
        args = [self.visit(arg) for arg in node.all_args]
        function = self.functions[name]
        charge = CHARGES.get(name)
        if name in ("_==_", "_!=_", "_+_") and (listed := unique(node)):
            return _with_frame(args, on_unique(name, listed), charge)
        if name in WITH_FRAME:
            return _with_frame(args, function, charge)
        if name == "_[_]":
            item = node.args[0].type
            convert = item.params[-1].convert if item.params and item.kind in ("list", "map") else None
            if convert is not None:
                return _with_frame(args, _converting(function, convert), charge)
        if len(args) == 2:
            left, right = args
            if charge is None:

                def binary(frame: Frame) -> Any:
                    a, b = left(frame), right(frame)
                    frame.cost += 1
                    return function(a, b)

                return binary

            def charged(frame: Frame) -> Any:
                a, b = left(frame), right(frame)
                frame.spend(charge(a, b))
                return function(a, b)

            return charged
        if len(args) == 1:
            only = args[0]

            def unary(frame: Frame) -> Any:
                a = only(frame)
                frame.spend(1 if charge is None else charge(a))
                return function(a)

            return unary

        def closure(frame: Frame) -> Any:
            values = [arg(frame) for arg in args]
            frame.spend(1 if charge is None else charge(*values))
            return function(*values)

        return closure

    # -- literals -------------------------------------------------------------------------------------------------
    def _list(self, node: MakeList) -> Closure:
        items = [self.visit(item) for item in node.items]
        if not any(node.optional):

            def closure(frame: Frame) -> Any:
                frame.cost += 10
                return [item(frame) for item in items]

            return closure
        marks = node.optional

        def with_optional(frame: Frame) -> Any:
            frame.cost += 10
            found = []
            for item, mark in zip(items, marks, strict=True):
                value = item(frame)
                if not mark:
                    found.append(value)
                elif type(value) is not Optional:
                    raise no_overload()
                elif value.present:
                    found.append(value.value)
            return found

        return with_optional

    def _map(self, node: MakeMap) -> Closure:
        entries = [
            (self.visit(key), self.visit(value), mark)
            for (key, value), mark in zip(node.entries, node.optional, strict=True)
        ]
        cost = 40 if node.name else 30

        def closure(frame: Frame) -> Any:
            frame.cost += cost
            found: dict[Any, Any] = {}
            for key, value, mark in entries:
                name, evaluated = key(frame), value(frame)
                if mark:
                    if type(evaluated) is not Optional:
                        raise no_overload()
                    if not evaluated.present:
                        continue
                    evaluated = evaluated.value
                if name in found:
                    raise EvaluationError(f"insert failed: key {shown(name)} already exists")
                found[name] = evaluated
            return found

        return closure

    def _bind(self, node: Bind) -> Closure:
        value, body, name = self.visit(node.value), self.visit(node.body), node.variable
        macro = node.macro

        def closure(frame: Frame) -> Any:
            evaluated = value(frame)
            if macro != "bind":
                if type(evaluated) is not Optional:
                    raise no_overload()
                if not evaluated.present:
                    return NONE
                evaluated = evaluated.value
            variables = frame.variables
            before = variables.get(name, NONE)
            variables[name] = evaluated
            try:
                found = body(frame)
            finally:
                if before is NONE:
                    del variables[name]
                else:
                    variables[name] = before
            return Optional(found) if macro == "optMap" else found

        return closure


def _with_frame(args: list[Closure], function: Function, charge: Charge | None) -> Closure:
    if len(args) == 2:
        left, right = args

        def binary(frame: Frame) -> Any:
            a, b = left(frame), right(frame)
            frame.spend(1 if charge is None else charge(a, b))
            return function(frame, a, b)

        return binary

    def closure(frame: Frame) -> Any:
        values = [arg(frame) for arg in args]
        frame.spend(1 if charge is None else charge(*values))
        return function(frame, *values)

    return closure


def _junction(*, stops: bool) -> Callable[[Closure, Closure], Closure]:
    """&& stops at false, || at true; an error on one side is none where the other decides."""

    def make(left: Closure, right: Closure) -> Closure:
        def closure(frame: Frame) -> Any:
            failure: EvaluationError | None = None
            try:
                if true(left(frame)) is stops:
                    return stops
            except BudgetExceeded:
                raise
            except EvaluationError as error:
                failure = error
            found = true(right(frame))
            if found is stops or failure is None:
                return found
            raise failure

        return closure

    return make


def _ternary(condition: Closure, yes: Closure, no: Closure) -> Closure:
    return lambda frame: yes(frame) if true(condition(frame)) else no(frame)


_SPECIAL: dict[str, Callable[..., Closure]] = {
    "_&&_": _junction(stops=False),
    "_||_": _junction(stops=True),
    "_?_:_": _ternary,
}


def _has(operand: Closure, key: str, *, of_object: bool) -> Closure:
    """Test for a field; an object's field that is null is not there, a map's entry is."""

    def closure(frame: Frame) -> Any:
        value = operand(frame)
        frame.cost += 1
        if type(value) is Optional:
            value = value.value if value.present else {}
        if type(value) is not dict:
            raise no_overload()
        return value.get(key) is not None if of_object else key in value

    return closure


def _select_any(operand: Closure, key: str, convert: Callable[[Any], Any] | None, *, optional: bool) -> Closure:
    """Select from what may be an optional value, or from dyn."""

    def closure(frame: Frame) -> Any:
        value = operand(frame)
        frame.cost += 1
        lifted = optional
        if type(value) is Optional:
            if not value.present:
                return NONE
            value, lifted = value.value, True
        if type(value) is not dict:
            raise no_overload()
        if key not in value:
            if lifted:
                return NONE
            raise EvaluationError(f"no such key: {key}")
        value = value[key]
        if convert is not None and value is not None:
            value = converted(frame, convert, value)
        return Optional(value) if lifted else value

    return closure


def _converting(function: Function, convert: Callable[[Any], Any]) -> Function:
    def item(frame: Frame, a: Any, b: Any) -> Any:
        value = function(a, b)
        return value if value is None else converted(frame, convert, value)

    return item
