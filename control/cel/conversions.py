"""Values of one type as values of another: int(x), string(x), timestamp(x) and their like."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from control.cel.errors import EvaluationError, no_overload
from control.cel.values import (
    MAX,
    MIN,
    SECOND,
    Duration,
    Timestamp,
    Uint,
    int64,
    kind_of,
    moment,
    parse_duration,
    parse_timestamp,
    uint64,
)

_NUMBERS = (int, Uint, float)


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
        moment = datetime.fromtimestamp(a.ns // SECOND, UTC).isoformat()[:19]
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


def to_timestamp(a: Any) -> Timestamp:
    if type(a) is Timestamp:
        return a
    if type(a) is str:
        return parse_timestamp(a)
    if type(a) is int:
        return moment(a * SECOND)
    raise no_overload()


def to_duration(a: Any) -> Duration:
    if type(a) is Duration:
        return a
    if type(a) is str:
        return parse_duration(a)
    if type(a) is int:
        return Duration(a)
    raise no_overload()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "bool": to_bool,
    "int": to_int,
    "uint": to_uint,
    "double": to_double,
    "string": to_string,
    "bytes": to_bytes,
    "timestamp": to_timestamp,
    "duration": to_duration,
}
