"""CEL's own functions on Python values. Each checks its arguments, because those of type dyn are not type-checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from control.cel import patterns
from control.cel.errors import EvaluationError, no_overload
from control.cel.frame import Frame
from control.cel.values import (
    NONE,
    Duration,
    Optional,
    Timestamp,
    TypeValue,
    Uint,
    equal,
    equal_item,
    int64,
    kind_of,
    moment,
    shown,
    uint64,
)

Function = Callable[..., Any]
_NUMBERS = (int, Uint, float)


def add(a: Any, b: Any) -> Any:
    one, other = type(a), type(b)
    if one is other:
        if one is int:
            return int64(a + b)
        if one in (str, float, list, bytes):
            return a + b
        if one is Uint:
            return uint64(int(a) + int(b))
        if one is Duration:
            return Duration(int64(a.ns + b.ns))
    if one is Timestamp and other is Duration:
        return moment(a.ns + b.ns)
    if one is Duration and other is Timestamp:
        return moment(a.ns + b.ns)
    raise no_overload()


def subtract(a: Any, b: Any) -> Any:
    one, other = type(a), type(b)
    if one is other:
        if one is int:
            return int64(a - b)
        if one is float:
            return a - b
        if one is Uint:
            return uint64(int(a) - int(b))
        if one is Timestamp or one is Duration:
            return Duration(int64(a.ns - b.ns))
    if one is Timestamp and other is Duration:
        return moment(a.ns - b.ns)
    raise no_overload()


def multiply(a: Any, b: Any) -> Any:
    if type(a) is type(b):
        if type(a) is int:
            return int64(a * b)
        if type(a) is float:
            return a * b
        if type(a) is Uint:
            return uint64(int(a) * int(b))
    raise no_overload()


def divide(a: Any, b: Any) -> Any:
    if type(a) is type(b):
        if type(a) is float:
            if b == 0:
                return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)
            return a / b
        if type(a) in (int, Uint):
            if b == 0:
                raise EvaluationError("division by zero")
            quotient = abs(int(a)) // abs(int(b))
            if type(a) is Uint:
                return Uint(quotient)
            return int64(quotient if (a < 0) == (b < 0) else -quotient)
    raise no_overload()


def modulo(a: Any, b: Any) -> Any:
    if type(a) is type(b) and type(a) in (int, Uint):
        if b == 0:
            raise EvaluationError("modulus by zero")
        rest = abs(int(a)) % abs(int(b))
        return Uint(rest) if type(a) is Uint else (-rest if a < 0 else rest)
    raise no_overload()


def negate(a: Any) -> Any:
    if type(a) is int:
        return int64(-a)
    if type(a) is float:
        return -a
    if type(a) is Duration:
        return Duration(int64(-a.ns))
    raise no_overload()


def negation(a: Any) -> bool:
    if type(a) is bool:
        return not a
    raise no_overload()


def unequal(frame: Frame, a: Any, b: Any) -> bool:
    return not equal(frame, a, b)


_ORDERED = frozenset({int, Uint, float, str, bytes, bool, Timestamp, Duration})


def _comparable(a: Any, b: Any) -> None:
    one, other = type(a), type(b)
    if one not in _ORDERED or (one is not other and not (one in _NUMBERS and other in _NUMBERS)):
        raise no_overload()


def less(a: Any, b: Any) -> bool:
    _comparable(a, b)
    return bool(a < b)


def less_equal(a: Any, b: Any) -> bool:
    _comparable(a, b)
    return bool(a <= b)


def greater(a: Any, b: Any) -> bool:
    _comparable(a, b)
    return bool(a > b)


def greater_equal(a: Any, b: Any) -> bool:
    _comparable(a, b)
    return bool(a >= b)


def contained(frame: Frame, a: Any, b: Any) -> bool:
    if type(b) is dict:
        return type(a) is not bool and a in b if not isinstance(a, list | dict) else False
    if type(b) is list:
        return any(equal_item(frame, a, item) for item in b)
    raise no_overload()


def index(a: Any, b: Any) -> Any:
    if type(a) is Optional:
        return optional_index(a, b)
    if type(a) is list:
        if type(b) is float and b.is_integer():
            b = int(b)
        if type(b) not in (int, Uint):
            raise no_overload()
        if 0 <= b < len(a):
            return a[b]
        raise EvaluationError(f"index out of bounds: {b}")
    if type(a) is dict:
        if type(b) not in (list, dict) and b in a:
            return a[b]
        raise EvaluationError(f"no such key: {shown(b)}")
    raise no_overload()


def optional_index(a: Any, b: Any) -> Optional:
    if type(a) is Optional:
        if not a.present:
            return NONE
        a = a.value
    if type(a) is dict:
        return Optional(a[b]) if type(b) not in (list, dict) and b in a else NONE
    if type(a) is list and type(b) in (int, Uint):
        return Optional(a[b]) if 0 <= b < len(a) else NONE
    raise no_overload()


def size(a: Any) -> int:
    if type(a) in (str, list, dict, bytes):
        return len(a)
    raise no_overload()


def type_of(a: Any) -> TypeValue:
    return TypeValue(kind_of(a))


def dyn(a: Any) -> Any:
    return a


# -- strings --------------------------------------------------------------------------------------------------------
def text(*values: Any) -> None:
    """Check that all arguments are strings."""
    for value in values:
        if type(value) is not str:
            raise no_overload()


def contains(a: Any, b: Any) -> bool:
    text(a, b)
    return b in a


def starts_with(a: Any, b: Any) -> bool:
    text(a, b)
    return bool(a.startswith(b))


def ends_with(a: Any, b: Any) -> bool:
    text(a, b)
    return bool(a.endswith(b))


def pattern(expression: str) -> Any:
    """Return a compiled RE2 pattern."""
    try:
        return patterns.compiled(expression)
    except patterns.PatternError as error:
        raise EvaluationError(str(error)) from error


def matches(a: Any, b: Any) -> bool:
    text(a, b)
    try:
        return patterns.found(b, a)
    except patterns.PatternError as error:
        raise EvaluationError(str(error)) from error


def _optional_value(a: Any) -> Any:
    if type(a) is not Optional:
        raise no_overload()
    if not a.present:
        raise EvaluationError("optional.none() dereference")
    return a.value


def _optional_or(a: Any, b: Any) -> Any:
    if type(a) is not Optional or type(b) is not Optional:
        raise no_overload()
    return a if a.present else b


def _or_value(a: Any, b: Any) -> Any:
    if type(a) is not Optional:
        raise no_overload()
    return a.value if a.present else b


def _has_value(a: Any) -> bool:
    if type(a) is not Optional:
        raise no_overload()
    return a.present


WITH_FRAME = frozenset(
    "_==_ _!=_ @in indexOf lastIndexOf format findAll sets.contains sets.equivalent sets.intersects".split()
)
"""Functions whose first argument is the frame: they look at values within lists, maps and texts, and spend on them."""
FUNCTIONS: dict[str, Function] = {
    "_+_": add,
    "_-_": subtract,
    "_*_": multiply,
    "_/_": divide,
    "_%_": modulo,
    "-_": negate,
    "!_": negation,
    "_==_": equal,
    "_!=_": unequal,
    "_<_": less,
    "_<=_": less_equal,
    "_>_": greater,
    "_>=_": greater_equal,
    "@in": contained,
    "_[_]": index,
    "_[?_]": optional_index,
    "size": size,
    "type": type_of,
    "dyn": dyn,
    "contains": contains,
    "startsWith": starts_with,
    "endsWith": ends_with,
    "matches": matches,
    "optional.of": Optional,
    "optional.none": lambda: NONE,
    "optional.ofNonZeroValue": lambda a: Optional(a) if a not in (None, 0, "", b"", [], {}, False) else NONE,
    "hasValue": _has_value,
    "value": _optional_value,
    "or": _optional_or,
    "orValue": _or_value,
}
