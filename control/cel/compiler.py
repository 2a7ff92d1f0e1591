"""Syntax tree to Python closures: what is evaluated again and again is decided once.

A closure takes the frame of one evaluation and returns a value; it adds to the frame's cost what cel-go's runtime cost tracker
would, and whatever can repeat looks at the limit. Errors are exceptions, which `&&`, `||` and the loops that
stand for them hold back until they know whether the other side decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from control.cel.checker import TYPE_NAMES
from control.cel.errors import BudgetExceeded, EvaluationError, no_overload
from control.cel.syntax import Bind, Call, Ident, Literal, Loop, MakeList, MakeMap, Node, Select
from control.cel.types import Type
from control.cel.values import NONE, Optional, TypeValue, equal, size_of

Function = Callable[..., Any]


class Frame:
    """One evaluation."""

    __slots__ = ("cost", "limit", "variables")

    def __init__(self, variables: dict[str, Any], limit: int) -> None:
        self.variables, self.limit, self.cost = variables, limit, 0

    def spend(self, cost: int) -> None:
        self.cost += cost
        if self.cost > self.limit:
            raise BudgetExceeded


Closure = Callable[[Frame], Any]


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
            return _LOOPS[node.macro](self, node)
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
            return _has(operand, key, inner.kind == "object")
        if node.optional or node.operand.type.kind in ("optional", "dyn"):
            return _select_any(operand, key, convert, node.optional)

        def closure(frame: Frame) -> Any:
            value = operand(frame)
            frame.cost += 1
            try:
                value = value[key]
            except KeyError:
                raise EvaluationError(f"no such key: {key}") from None
            except TypeError:
                raise no_overload() from None
            return value if convert is None or value is None else convert(value)

        return closure

    # -- calls ----------------------------------------------------------------------------------------------------
    def _call(self, node: Call) -> Closure:
        name = node.function
        special = _SPECIAL.get(name)
        if special is not None:
            return special(*(self.visit(arg) for arg in node.args))
        args = [self.visit(arg) for arg in node.all_args]
        function = self.functions[name]
        if name in ("_==_", "_!=_", "_+_") and (unique := _unique(node)):
            function = _on_unique(name, unique)
        if name == "_[_]":
            item = node.args[0].type
            convert = item.params[-1].convert if item.params and item.kind in ("list", "map") else None
            if convert is not None:
                function = _converting(function, convert)
        charge = _CHARGES.get(name)
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
                name, held = key(frame), value(frame)
                if mark:
                    if type(held) is not Optional:
                        raise no_overload()
                    if not held.present:
                        continue
                    held = held.value
                if name in found:
                    raise EvaluationError(f"insert failed: key {name} already exists")
                found[name] = held
            return found

        return closure

    def _bind(self, node: Bind) -> Closure:
        value, body, name = self.visit(node.value), self.visit(node.body), node.variable
        macro = node.macro

        def closure(frame: Frame) -> Any:
            held = value(frame)
            if macro != "bind":
                if type(held) is not Optional:
                    raise no_overload()
                if not held.present:
                    return NONE
                held = held.value
            variables = frame.variables
            before = variables.get(name, NONE)
            variables[name] = held
            try:
                found = body(frame)
            finally:
                if before is NONE:
                    del variables[name]
                else:
                    variables[name] = before
            return Optional(found) if macro == "optMap" else found

        return closure

    # -- loops ----------------------------------------------------------------------------------------------------
    def each(self, node: Loop) -> Callable[[Frame], Iterator[None]]:
        """Return what steps through a loop's range with its variables set."""
        over, names = self.visit(node.over), node.variables
        kind, params = node.over.type.kind, node.over.type.params
        convert = params[-1].convert if params and kind in ("list", "map") else None
        only = names[0] if len(names) == 1 else ""

        def steps(frame: Frame) -> Iterator[None]:
            collection = over(frame)
            variables = frame.variables
            saved = [(name, variables[name]) for name in names if name in variables]
            if type(collection) is dict:
                pairs = iter([(key, key if only else value) for key, value in collection.items()])
            elif type(collection) is list:
                pairs = enumerate(list(collection))
            else:
                raise no_overload()
            change = convert if convert is not None and not (only and type(collection) is dict) else None
            try:
                for first, second in pairs:
                    frame.cost += 3
                    if frame.cost > frame.limit:
                        raise BudgetExceeded
                    if change is not None and second is not None:
                        second = change(second)
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


def _quantifier(whole: bool) -> Callable[[_Compiler, Loop], Closure]:
    """all (`whole`) and exists: the first item that decides ends it, errors count only if none does."""

    def make(compiler: _Compiler, node: Loop) -> Closure:
        steps, body = compiler.each(node), compiler.visit(node.body)

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


def _exists_one(compiler: _Compiler, node: Loop) -> Closure:
    steps, body = compiler.each(node), compiler.visit(node.body)

    def closure(frame: Frame) -> Any:
        count = 0
        for _ in steps(frame):
            count += _true(body(frame))
        return count == 1

    return closure


def _filter(compiler: _Compiler, node: Loop) -> Closure:
    steps, body, name = compiler.each(node), compiler.visit(node.body), node.variables[0]

    def closure(frame: Frame) -> Any:
        found = []
        frame.cost += 10
        for _ in steps(frame):
            if _true(body(frame)):
                frame.cost += 10
                found.append(frame.variables[name])
        return found

    return closure


def _mapped(compiler: _Compiler, node: Loop) -> Closure:
    steps, body = compiler.each(node), compiler.visit(node.body)
    condition = compiler.visit(node.condition) if node.condition is not None else None

    def closure(frame: Frame) -> Any:
        found = []
        frame.cost += 10
        for _ in steps(frame):
            if condition is None or _true(condition(frame)):
                frame.cost += 10
                found.append(body(frame))
        return found

    return closure


def _transformed(compiler: _Compiler, node: Loop) -> Closure:
    steps, body, entry = compiler.each(node), compiler.visit(node.body), node.macro == "transformMapEntry"
    condition = compiler.visit(node.condition) if node.condition is not None else None
    key = node.variables[0]

    def closure(frame: Frame) -> Any:
        found: dict[Any, Any] = {}
        frame.cost += 30
        for _ in steps(frame):
            if condition is not None and not _true(condition(frame)):
                continue
            frame.cost += 10
            value = body(frame)
            new = value if entry else {frame.variables[key]: value}
            if type(new) is not dict:
                raise no_overload()
            for name in new:
                if name in found:
                    raise EvaluationError(f"insert failed: key {name} already exists")
            found.update(new)
        return found

    return closure


_LOOPS: dict[str, Callable[[_Compiler, Loop], Closure]] = {
    "all": _quantifier(True),
    "exists": _quantifier(False),
    "exists_one": _exists_one,
    "filter": _filter,
    "map": _mapped,
    "transformList": _mapped,
    "transformMap": _transformed,
    "transformMapEntry": _transformed,
}


def _true(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise no_overload()


def _junction(stops: bool) -> Callable[[Closure, Closure], Closure]:
    """&& stops at false, || at true; an error on one side is none where the other decides."""

    def make(left: Closure, right: Closure) -> Closure:
        def closure(frame: Frame) -> Any:
            failure: EvaluationError | None = None
            try:
                if _true(left(frame)) is stops:
                    return stops
            except BudgetExceeded:
                raise
            except EvaluationError as error:
                failure = error
            found = _true(right(frame))
            if found is stops or failure is None:
                return found
            raise failure

        return closure

    return make


def _ternary(condition: Closure, yes: Closure, no: Closure) -> Closure:
    return lambda frame: yes(frame) if _true(condition(frame)) else no(frame)


_SPECIAL: dict[str, Callable[..., Closure]] = {
    "_&&_": _junction(False),
    "_||_": _junction(True),
    "_?_:_": _ternary,
}


def _has(operand: Closure, key: str, of_object: bool) -> Closure:
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


def _select_any(operand: Closure, key: str, convert: Callable[[Any], Any] | None, optional: bool) -> Closure:
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
            value = convert(value)
        return Optional(value) if lifted else value

    return closure


def _converting(function: Function, convert: Callable[[Any], Any]) -> Function:
    def converted(a: Any, b: Any) -> Any:
        value = function(a, b)
        return value if value is None else convert(value)

    return converted


# -- lists of type set and map --------------------------------------------------------------------------------------
def _unique(node: Call) -> Type | None:
    types = [arg.type for arg in node.args]
    return types[0] if types[0].unique else types[-1] if types[-1].unique else None


def _identity(item: Any, type_: Type) -> Any:
    if type_.unique == "map" and type(item) is dict:
        return [item.get(key) for key in type_.keys]
    return item


def _on_unique(name: str, type_: Type) -> Function:
    """`==` without regard to order, and `+` as a union in which the right side's items replace those of the same key."""

    def same(a: Any, b: Any) -> bool:
        if type(a) is not list or type(b) is not list:
            return equal(a, b)
        return len(a) == len(b) and all(any(equal(x, y) for y in b) for x in a)

    def union(a: Any, b: Any) -> Any:
        if type(a) is not list or type(b) is not list:
            raise no_overload()
        found = list(a)
        for item in b:
            identity = _identity(item, type_)
            for place, other in enumerate(found):
                if equal(_identity(other, type_), identity):
                    found[place] = item
                    break
            else:
                found.append(item)
        return found

    if name == "_+_":
        return union
    return same if name == "_==_" else lambda a, b: not same(a, b)


# -- cost -----------------------------------------------------------------------------------------------------------
def _tenth(size: int) -> int:
    return math.ceil(size * 0.1)


def _compare(a: Any, b: Any) -> int:
    return max(1, _tenth(min(size_of(a), size_of(b))))


def _traversal(*values: Any) -> int:
    return max(1, _tenth(size_of(values[0])))


def _pattern(a: Any, b: Any, *_: Any) -> int:
    return max(1, _tenth(1 + size_of(a)) * math.ceil(size_of(b) * 0.25))


def _product(a: Any, b: Any) -> int:
    return max(1, size_of(a) * size_of(b))


def _replaced(a: Any, old: Any, new: Any, *_: Any) -> int:
    """What is made counts too: it can be the square of what is given."""
    if type(a) is not str or type(old) is not str:
        return 1
    return max(1, _tenth(len(a) + a.count(old) * size_of(new)))


def _joined(a: Any, separator: Any = "") -> int:
    if type(a) is not list:
        return 1
    return max(1, _tenth(sum(map(size_of, a)) + len(a) * size_of(separator)))


_CHARGES: dict[str, Function] = {
    "_==_": _compare,
    "_!=_": _compare,
    "_<_": _compare,
    "_<=_": _compare,
    "_>_": _compare,
    "_>=_": _compare,
    "_+_": lambda a, b: max(1, _tenth(size_of(a) + size_of(b))) if type(a) in (str, bytes, list) else 1,
    "@in": lambda a, b: max(1, size_of(b)) if type(b) is list else 1,
    "contains": lambda a, b: max(1, _tenth(size_of(a)) * _tenth(size_of(b))),
    "startsWith": lambda a, b: max(1, _tenth(size_of(b))),
    "endsWith": lambda a, b: max(1, _tenth(size_of(b))),
    "matches": _pattern,
    "find": _pattern,
    "findAll": _pattern,
    "sets.contains": _product,
    "sets.equivalent": _product,
    "sets.intersects": _product,
    "replace": _replaced,
    "join": _joined,
}
_TRAVERSING = (
    "string bytes timestamp duration lowerAscii upperAscii split substring trim reverse quote format indexOf"
    " lastIndexOf charAt quantity isQuantity url isURL ip isIP cidr isCIDR semver isSemver validate"
)
_CHARGES.update(dict.fromkeys(_TRAVERSING.split(), _traversal))
_CHARGES.update(dict.fromkeys(("isSorted", "sum", "min", "max"), lambda a: max(1, size_of(a))))
