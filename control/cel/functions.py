"""What the functions of CEL itself do, on Python values. Each checks its arguments, as dyn ones come unchecked."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from control.cel.errors import EvaluationError, no_overload
from control.cel.values import (
    MAX,
    MIN,
    NONE,
    SECOND,
    Duration,
    Optional,
    Timestamp,
    TypeValue,
    Uint,
    equal,
    int64,
    kind_of,
    parse_duration,
    parse_timestamp,
    uint64,
)
from control.custom import patterns

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
        return _moment(a.ns + b.ns)
    if one is Duration and other is Timestamp:
        return _moment(a.ns + b.ns)
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
        return _moment(a.ns - b.ns)
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


def unequal(a: Any, b: Any) -> bool:
    return not equal(a, b)


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


def contained(a: Any, b: Any) -> bool:
    if type(b) is dict:
        return type(a) is not bool and a in b if not isinstance(a, list | dict) else False
    if type(b) is list:
        return any(equal(a, item) for item in b)
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
        raise EvaluationError(f"no such key: {b}")
    raise no_overload()


def optional_index(a: Any, b: Any) -> Optional:
    if type(a) is Optional:
        if not a.present:
            return NONE
        a = a.value
    if type(a) is dict:
        return Optional(a[b]) if b in a else NONE
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


# -- conversions ----------------------------------------------------------------------------------------------------
def _fails(a: Any, to: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from '{kind_of(a)}' to '{to}'")


def to_bool(a: Any) -> bool:
    if type(a) is bool:
        return a
    if type(a) is str:
        if a in ("1", "t", "T", "true", "TRUE", "True"):
            return True
        if a in ("0", "f", "F", "false", "FALSE", "False"):
            return False
        raise _fails(a, "bool")
    raise no_overload()


def to_int(a: Any) -> int:
    kind = type(a)
    if kind is int:
        return int(a)
    if kind is Uint:
        return int64(int(a))
    if kind is float:
        if not (math.isfinite(a) and MIN < a < MAX):
            raise EvaluationError("integer overflow")
        return int(a)
    if kind is str:
        try:
            return int64(int(a.replace("_", "x")))
        except ValueError:
            raise _fails(a, "int") from None
    if kind is Timestamp:
        return int(a.ns // SECOND)
    if kind is Duration:
        return int(a.ns)
    raise no_overload()


def to_uint(a: Any) -> Uint:
    if type(a) is str:
        try:
            return uint64(int(a.replace("_", "x")))
        except ValueError:
            raise _fails(a, "uint") from None
    if type(a) is float and not math.isfinite(a):
        raise EvaluationError("unsigned integer overflow")
    if type(a) in _NUMBERS:
        return uint64(int(a))
    raise no_overload()


def to_double(a: Any) -> float:
    if type(a) is str:
        try:
            return float(a.replace("_", "x"))
        except ValueError:
            raise _fails(a, "double") from None
    if type(a) in _NUMBERS:
        return float(a)
    raise no_overload()


def to_string(a: Any) -> str:
    kind = type(a)
    if kind is str:
        return str(a)
    if kind is bool:
        return "true" if a else "false"
    if kind is int or kind is Uint:
        return str(int(a))
    if kind is float:
        return plain_double(a)
    if kind is bytes:
        try:
            return bytes(a).decode()
        except UnicodeDecodeError:
            raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None
    if kind is Timestamp:
        moment = datetime.fromtimestamp(a.ns // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        rest = a.ns % SECOND
        return moment + (f".{rest:09d}".rstrip("0") if rest else "") + "Z"
    if kind is Duration:
        seconds, rest = divmod(abs(a.ns), SECOND)
        text = f"{seconds}" + (f".{rest:09d}".rstrip("0") if rest else "")
        return ("-" if a.ns < 0 else "") + text + "s"
    found = _TEXTS.get(kind_of(a))
    if found is not None:
        return found(a)
    raise no_overload()


_TEXTS: dict[str, Callable[[Any], str]] = {"net.IP": str, "net.CIDR": lambda a: str(a.interface)}


def plain_double(a: float) -> str:
    """Write a double as Go does: without an exponent below 1e21."""
    if math.isnan(a):
        return "NaN"
    if math.isinf(a):
        return "+Inf" if a > 0 else "-Inf"
    if a.is_integer() and abs(a) < 1e21:
        return str(int(a))
    return repr(a)


def to_bytes(a: Any) -> bytes:
    if type(a) is bytes:
        return a
    if type(a) is str:
        return a.encode()
    raise no_overload()


_FIRST = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * SECOND
_LAST = 253402300800 * SECOND - 1


def _moment(ns: int) -> Timestamp:
    if _FIRST <= ns <= _LAST:
        return Timestamp(ns)
    raise EvaluationError("timestamp overflow")


def to_timestamp(a: Any) -> Timestamp:
    if type(a) is Timestamp:
        return a
    if type(a) is str:
        return parse_timestamp(a)
    if type(a) is int:
        return _moment(a * SECOND)
    raise no_overload()


def to_duration(a: Any) -> Duration:
    if type(a) is Duration:
        return a
    if type(a) is str:
        return parse_duration(a)
    if type(a) is int:
        return Duration(a)
    raise no_overload()


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
    return pattern(b).search(a) is not None


# -- times ----------------------------------------------------------------------------------------------------------
@functools.lru_cache(maxsize=256)
def _zone(name: str) -> Any:
    try:
        if name[:1] in "+-" or name[:1].isdigit():
            sign = -1 if name.startswith("-") else 1
            hours, minutes = name.lstrip("+-").split(":")
            return timezone(sign * timedelta(hours=int(hours), minutes=int(minutes)))
        return ZoneInfo(name)
    except (ValueError, ZoneInfoNotFoundError, OSError):
        raise EvaluationError(f"unknown time zone {name}") from None


def _part(read: Callable[[datetime], int], of_duration: int = 0, milliseconds: bool = False) -> Function:
    def function(a: Any, zone: Any = "UTC") -> int:
        if type(a) is Duration and of_duration:
            whole = abs(a.ns) // of_duration
            if milliseconds:
                whole = abs(a.ns) % SECOND // of_duration
            return -whole if a.ns < 0 else whole
        if type(a) is not Timestamp:
            raise no_overload()
        if milliseconds:
            return int(a.ns % SECOND // 1_000_000)
        text(zone)
        try:
            return read(datetime.fromtimestamp(a.ns // SECOND, _zone(zone)))
        except (ValueError, OverflowError):
            raise EvaluationError("timestamp overflow") from None

    return function


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
    "bool": to_bool,
    "int": to_int,
    "uint": to_uint,
    "double": to_double,
    "string": to_string,
    "bytes": to_bytes,
    "timestamp": to_timestamp,
    "duration": to_duration,
    "contains": contains,
    "startsWith": starts_with,
    "endsWith": ends_with,
    "matches": matches,
    "getFullYear": _part(lambda t: t.year),
    "getMonth": _part(lambda t: t.month - 1),
    "getDayOfYear": _part(lambda t: t.timetuple().tm_yday - 1),
    "getDayOfMonth": _part(lambda t: t.day - 1),
    "getDate": _part(lambda t: t.day),
    "getDayOfWeek": _part(lambda t: (t.weekday() + 1) % 7),
    "getHours": _part(lambda t: t.hour, 3600 * SECOND),
    "getMinutes": _part(lambda t: t.minute, 60 * SECOND),
    "getSeconds": _part(lambda t: t.second, SECOND),
    "getMilliseconds": _part(lambda t: 0, 1_000_000, True),
    "optional.of": Optional,
    "optional.none": lambda: NONE,
    "optional.ofNonZeroValue": lambda a: Optional(a) if a not in (None, 0, "", b"", [], {}, False) else NONE,
    "hasValue": _has_value,
    "value": _optional_value,
    "or": _optional_or,
    "orValue": _or_value,
}
