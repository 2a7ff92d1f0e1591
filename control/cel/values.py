"""The values that Python has no type for, and the rules that it sees differently: equality, order, sizes of numbers.

JSON is used as it is: dicts are maps and objects, lists are lists, so that an object is never copied into an evaluation.
An int is CEL's int and a float its double; bool is never a number here.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from decimal import Decimal
from typing import Any

import msgspec

from control.cel.errors import EvaluationError
from control.cel.frame import Frame
from kube.group_patterns import fullmatch

MAX, MIN, MAX_UNSIGNED = (1 << 63) - 1, -(1 << 63), (1 << 64) - 1
SECOND = 1_000_000_000
_UNITS = {"ns": 1, "us": 1000, "µs": 1000, "μs": 1000, "ms": 10**6, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_DURATION = re.compile(r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+|[+-]?0")
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")


class Uint(int):
    """CEL's uint."""

    __slots__ = ()


class Timestamp(msgspec.Struct, frozen=True, order=True):
    """A moment, in nanoseconds since 1970."""

    ns: int


class Duration(msgspec.Struct, frozen=True, order=True):
    """A length of time, in nanoseconds."""

    ns: int


class TypeValue(msgspec.Struct, frozen=True):
    """Result of type(x)."""

    name: str


class Optional(msgspec.Struct, frozen=True):
    """A value that may not be there."""

    value: Any
    present: bool = True


NONE = Optional(None, False)


class Quantity(msgspec.Struct, frozen=True, order=True):
    """A Kubernetes quantity: a number exactly as it was meant."""

    number: Decimal


class URL(msgspec.Struct, frozen=True):
    """An absolute URL or path, in its parts as Go's url.Parse gives them."""

    text: str
    scheme: str
    host: str
    path: str
    query: str


class CIDR(msgspec.Struct, frozen=True):
    """An address with the length of its network's prefix."""

    interface: ipaddress.IPv4Interface | ipaddress.IPv6Interface


class Semver(msgspec.Struct, frozen=True):
    """A semantic version, comparable by `order`."""

    major: int
    minor: int
    patch: int
    pre: tuple[tuple[int, int, str], ...] = ()
    text: str = ""

    @property
    def order(self) -> tuple[Any, ...]:
        return self.major, self.minor, self.patch, not self.pre, self.pre


class Format(msgspec.Struct, frozen=True):
    """A named format that strings can be checked against."""

    name: str


def parse_duration(text: str) -> Duration:
    """Read a Go duration; raises EvaluationError."""
    if not fullmatch(_DURATION, text):
        raise EvaluationError("type conversion error from 'string' to 'google.protobuf.Duration'")
    total = 0
    for number, unit in _PART.findall(text):
        whole, _, part = number.partition(".")
        if len(whole := whole.lstrip("0")) > 19:
            raise EvaluationError("type conversion error from 'string' to 'google.protobuf.Duration'")
        part = part[:20]
        total += int(whole or 0) * _UNITS[unit] + int(part or 0) * _UNITS[unit] // 10 ** len(part)
    return Duration(int64(-total if text.startswith("-") else total))


_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def parse_timestamp(text: str) -> Timestamp:
    """Read an RFC 3339 time; raises EvaluationError."""
    from datetime import datetime

    found = _TIME.fullmatch(text)
    try:
        if found is None:
            raise ValueError(text)
        moment = datetime.fromisoformat(found.group(1).upper() + found.group(3).upper())
        seconds = int(moment.timestamp())
    except (ValueError, OverflowError):
        raise EvaluationError("type conversion error from 'string' to 'google.protobuf.Timestamp'") from None
    return Timestamp(seconds * SECOND + int((found.group(2) or "0").ljust(9, "0")))


_KINDS: dict[type, str] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    dict: "map",
    type(None): "null_type",
    Timestamp: "google.protobuf.Timestamp",
    Duration: "google.protobuf.Duration",
    Optional: "optional_type",
    TypeValue: "type",
    Quantity: "kubernetes.Quantity",
    URL: "kubernetes.URL",
    CIDR: "net.CIDR",
    Semver: "kubernetes.Semver",
    Format: "kubernetes.NamedFormat",
    ipaddress.IPv4Address: "net.IP",
    ipaddress.IPv6Address: "net.IP",
}
_NUMBERS = frozenset({int, Uint, float})


def kind_of(value: Any) -> str:
    """Return the name of a value's CEL type."""
    return _KINDS.get(type(value)) or "object"


SHOWN = 256
"""Characters of a value in a message."""


def shown(value: Any) -> str:
    """Return a value for a message: the kind of one that has parts, whose text can be of any length."""
    if type(value) is bool:
        return "true" if value else "false"
    text = str(value) if type(value) in (str, int, Uint, float) else kind_of(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def equal(frame: Frame, a: Any, b: Any) -> bool:
    """CEL's `==`: numbers compare across their types, anything else of different types is not equal.

    Raise BudgetExceeded if the values within lists and maps are too many.
    """
    one, other = type(a), type(b)
    if one is other:
        if one is list:
            return len(a) == len(b) and all(map(equal_item, itertools.repeat(frame), a, b))
        if one is dict:
            return len(a) == len(b) and _equal_entries(frame, a, b)
        if one is Optional:
            return a.present == b.present and equal_item(frame, a.value, b.value)
        if one is Semver:
            return bool(a.order == b.order)
        return bool(a == b)
    return one in _NUMBERS and other in _NUMBERS and bool(a == b)


def _equal_entries(frame: Frame, a: dict[Any, Any], b: dict[Any, Any]) -> bool:
    for key, value in a.items():
        if type(key) is str and len(key) > 1000:
            frame.spend(len(key) // 1000)
        if key not in b or not equal_item(frame, value, b[key]):
            return False
    return True


def equal_item(frame: Frame, a: Any, b: Any) -> bool:
    """Return whether items of lists or values of maps are equal; raises BudgetExceeded."""
    kind = type(a)
    if kind is list or kind is dict:
        frame.spend_on_items(len(a))
    elif kind is str:
        frame.spend(len(a) // 1000)
        return type(b) is str and bool(a == b)
    return equal(frame, a, b)


def size_of(value: Any) -> int:
    """Return what an operation on a value is charged by: its length, or 1."""
    kind = type(value)
    return len(value) if kind is str or kind is list or kind is dict or kind is bytes else 1


def is_larger(value: Any, most: int) -> bool:
    """Return whether a value, written out, has more than so many characters, items and entries."""
    left, room = [value], most
    while left and room >= 0:
        found = left.pop()
        kind = type(found)
        if kind is list or kind is dict:
            room -= len(found)
            left += found if kind is list else [*found, *found.values()]
        elif kind is Optional:
            left.append(found.value)
        else:
            room -= size_of(found)
    return room < 0


def int64(value: int) -> int:
    """Return an int result; raises EvaluationError if it overflows."""
    if MIN <= value <= MAX:
        return value
    raise EvaluationError("integer overflow")


def uint64(value: int) -> Uint:
    if 0 <= value <= MAX_UNSIGNED:
        return Uint(value)
    raise EvaluationError("unsigned integer overflow")


_FIRST = -62135596800 * SECOND
_LAST = 253402300800 * SECOND - 1


def moment(ns: int) -> Timestamp:
    """Return a timestamp; raises EvaluationError outside of the years 1 to 9999."""
    if _FIRST <= ns <= _LAST:
        return Timestamp(ns)
    raise EvaluationError("timestamp overflow")
