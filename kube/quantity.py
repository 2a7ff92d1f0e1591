"""Resource quantities: exact arithmetic on "500m", "1Gi", "2e3", and upstream's canonical form.

A quantity keeps the family of its suffix (binary, decimal, exponent) and is printed with the largest suffix that leaves no
fraction; below a nano is rounded up, and more than 2^63-1 with a binary suffix is 2^63-1 (apimachinery's pkg/api/resource).

Quantities with other suffixes are limited to 10^1000 only, their whole units and thousandths to an int64: what computes with
these may divide them, convert them to floats and put them into fields of 64 bits.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context, Decimal

from kube.bounded_cache import bounded_cache

Quantity = str | int | float

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_PATTERN = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?[0-9]+))?")
_NANO = Decimal("1e-9")
_LONGEST = 1000
"""Largest exponent, and digits of a quantity: more than that is no amount of anything, only work."""
MOST = 2**63 - 1
"""Largest number of whole units or thousandths, as in an int64."""
LARGEST = Decimal(10) ** _LONGEST
"""Largest amount with a suffix that is not binary."""
_PRINTED = _LONGEST + 20
"""Characters of the largest amount as it is printed, with its nanos and suffix: what was computed can be parsed again."""
_EXACT = Context(prec=4 * _LONGEST, rounding=ROUND_CEILING)
MESSAGE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class QuantityError(ValueError):
    """Not a quantity; the message is upstream's."""


@functools.lru_cache(4096)
def parse(quantity: Quantity) -> Decimal:
    """Return the exact value of a quantity; QuantityError where it is none."""
    return _split(quantity)[0]


def _split(quantity: Quantity) -> tuple[Decimal, str]:
    text = str(quantity).strip() if not isinstance(quantity, str) else quantity
    match = _PATTERN.fullmatch(text) if len(text) <= _PRINTED else None
    if not match or int(match[4] or 0) > _LONGEST:
        raise QuantityError(MESSAGE)
    number, binary, decimal, exponent = match.groups()
    value = Decimal(number)
    family = "decimal"
    if binary:
        value = min(max(_EXACT.multiply(value, Decimal(_BINARY[binary])), Decimal(-MOST)), Decimal(MOST))
        family = "binary"
    elif decimal:
        value = value.scaleb(_DECIMAL[decimal], _EXACT)
    elif exponent:
        value = value.scaleb(max(int(exponent), -3 * _LONGEST), _EXACT)
        family = "exponent"
    if value.adjusted() >= LARGEST.adjusted():
        value = _limited(value)
    return _nanos(value) if value.as_tuple().exponent < -9 else value, family  # type: ignore[operator]


def _limited(number: Decimal) -> Decimal:
    return min(max(number, -LARGEST), LARGEST)


def _nanos(number: Decimal) -> Decimal:
    return number.quantize(_NANO, ROUND_CEILING, _EXACT)


def value(quantity: Quantity) -> int:
    """Return the quantity in whole units, rounded up: bytes, pods. What no int64 holds is the largest or smallest one."""
    return _whole(parse(quantity))


def milli(quantity: Quantity) -> int:
    """Return the quantity in thousandths, rounded up: millicores. What no int64 holds is the largest or smallest one."""
    return _whole(_EXACT.multiply(parse(quantity), Decimal(1000)))


def _whole(number: Decimal) -> int:
    if abs(number) >= MOST:
        return MOST if number > 0 else -MOST
    return int(number.to_integral_value(ROUND_CEILING))


def plus(first: Decimal, second: Decimal) -> Decimal:
    """Return an exact sum; `+` rounds to the digits of Decimal's context, 28."""
    return _EXACT.add(first, second)


def total(amounts: Sequence[Quantity]) -> Quantity:
    """Return the sum of quantities in the family of the first that is not 0 (Go: Quantity.Add); of one, the quantity itself."""
    if len(amounts) == 1:
        return amounts[0]
    number = functools.reduce(plus, map(parse, amounts), Decimal(0))
    return render_like(number, next((amount for amount in amounts if parse(amount)), 0))


def render_like(number: Decimal, model: Quantity) -> str:
    """Print an exact number in the suffix family of a quantity."""
    return render(number, _split(model)[1])


def remainder(amount: Decimal, of: Decimal | int) -> Decimal:
    """Return what is left of an amount; `%` fails where the quotient has more digits than Decimal's context, 28."""
    return _EXACT.remainder(amount, of)


def canonical(quantity: Quantity) -> str:
    """Return the quantity as upstream prints it: 1024Mi -> 1Gi, 0.5 -> 500m, 1000m -> 1."""
    return _canonical(quantity if isinstance(quantity, str) else str(quantity))


@bounded_cache(4096)
def _canonical(text: str) -> str:
    number, family = _split(text)
    return render(number, family)


def render(number: Decimal | int, family: str = "decimal") -> str:
    """Print an exact number in a suffix family: "decimal", "binary" or "exponent"."""
    number = _limited(Decimal(number))
    if number == 0:
        return "0"
    if family == "binary" and abs(number) >= 1024 and number == number.to_integral_value():
        whole = int(number)
        for suffix, size in reversed(_BINARY.items()):
            if whole % size == 0:
                return f"{whole // size}{suffix}"
        return str(whole)
    nanos = int(_EXACT.multiply(number, Decimal(10**9)).to_integral_value(ROUND_CEILING))
    for suffix, power in reversed(_DECIMAL.items()):
        size = 10 ** (power + 9)
        if nanos % size == 0:
            count = nanos // size
            if family == "exponent":
                return f"{count}e{power}" if power else str(count)
            return f"{count}{suffix}"
    raise AssertionError("a whole number of nanos always has a suffix")
