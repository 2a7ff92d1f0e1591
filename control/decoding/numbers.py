"""Decodes untyped JSON numbers as Go does: int64, float64 for larger ones, an error beyond those.

Python reads integers of any size. Stored as such, one makes every list with its object unreadable for clients in Go.
Upstream: sigs.k8s.io/json.
"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_EXPONENT = 1e21
"""The least that Go writes with an exponent."""
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_LONG, _LONGEST = b"0" * 19, b"0" * 309
"""Digits of the shortest integers that may be beyond 64 bits, and beyond doubles."""


class NumberError(ValueError):
    """A number that no JSON of Go can carry; the message is Go's."""


def normalized(value: Any) -> Any:
    """Return a JSON value with its numbers as Go has them, the value itself if all are; raises NumberError."""
    return value if not _has(msgspec.json.encode(value), _LONG) else converted(value)


def may_be_long(text: bytes) -> bool:
    """Return whether a JSON text has as many digits in a row as an integer beyond 64 bits."""
    return _has(text, _LONG)


def may_be_too_large(text: bytes) -> bool:
    """Return whether a text has as many digits in a row as an integer that is larger than any double."""
    return _has(text, _LONGEST)


def _has(text: bytes, digits: bytes) -> bool:
    """Return whether a text has so many digits in a row; ten times as fast as a regular expression."""
    return len(text) >= len(digits) and digits in text.translate(_DIGITS)


def converted(value: Any) -> Any:
    """Return a copy of a value with its numbers as Go has them; raises NumberError, for NaN and infinity too."""
    if isinstance(value, dict):
        return {key: converted(part) for key, part in value.items()}
    if isinstance(value, list):
        return [converted(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise NumberError(f"json: unsupported value: {'NaN' if math.isnan(value) else '+Inf' if value > 0 else '-Inf'}")
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        return _double(value)
    return value


def _double(value: int) -> int | float:
    try:
        found = float(value)
    except OverflowError:
        raise out_of_range(str(value)) from None
    return int(found) if abs(found) < _EXPONENT else found


def out_of_range(text: str) -> NumberError:
    """Return the error for a number that is too large."""
    return NumberError(f"json: cannot unmarshal number {text} into Go value of type float64")


def too_large(text: str) -> NumberError | None:
    """Return the error for the first number of a JSON text that is too large, None if there is none."""

    def number(digits: str) -> float:
        if math.isinf(found := float(digits)):
            raise out_of_range(digits)
        return found

    try:
        json.loads(text, parse_float=number)
    except NumberError as error:
        return error
    except (ValueError, RecursionError):
        pass
    return None
